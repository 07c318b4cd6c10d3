"""Why a pair is fast or slow, and what an engine's log line says."""

"""Reading and writing models.

- `pairs` loads a target with its draft, `smollm2` one chat model that needs no hub;
- `checkpoints` reads and writes one model's folder, `model_config` its config.json;
- `weights` reads and writes trained drafters;
- `files` bounds what comes from outside, and writes files whole;
- `memory` compares what models need with what a device has, `hub` lists pairs by that need.

Prompts and corpora belong in `texts`.
"""

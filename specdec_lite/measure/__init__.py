"""What is measured: times (`timing`), what a device does meanwhile (`profiler`), and recordings
(`results`).
"""

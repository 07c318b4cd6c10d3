"""The models and their cache.

`models` has `CausalLM`, the one interface to both kinds of model: our own (`transformer`, run by
`native`, with copies of frozen weights from `linear` and `int4`) and Hugging Face's
(`hugging_face`, checked by `self_test`). `cache` has the key/value cache and the tree masks,
`ragged` the pass of a batch whose rows differ in length.
"""

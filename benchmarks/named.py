"""Map each method that the book's map names (`book/map.yml`) to its rows on the scoreboard.

A name without a row has one sentence with the reason. `methods` defines the rows.
"""

NAMED: dict[str, tuple[str, ...] | str] = {
    "blockwise parallel decoding": ("blockwise heads",),
    "SpecDec": "Its draft fills in places of a translation; its rule stands at the draft model's"
    " rows, as top_k_match.",
    "speculative decoding": ("draft model",),
    "speculative sampling": ("draft model",),
    "block verification": (
        "draft model × block_verification",
        "EAGLE-1, a chain × block_verification",
    ),
    "lenience": (
        "draft model × lenient(0.6)",
        "draft model × lenient_scaled(0.6)",
        "draft model × lenient_argmax(0.6)",
        "EAGLE-1, a chain × lenient(0.6)",
    ),
    "n-gram counts": ("n-gram model",),
    "prompt lookup": ("prompt lookup",),
    "LLMA": ("prompt lookup",),
    "a hash pool": ("a hash pool",),
    "REST": ("REST, a tree",),
    "suffix decoding": ("suffix decoding", "suffix decoding, a tree"),
    "token recycling": ("token recycling",),
    "Draft & Verify": ("layers left out",),
    "LayerSkip": ("early exit",),
    "Kangaroo": ("early exit",),
    "QuantSpec": ("the target in 8 bits",),
    "PaSS": ("look-ahead rows",),
    "MagicDec": ("sinks and a window",),
    "SPIRe": "It is a sparse cache on a model pruned from the target, and no pruned model ships: the"
    " sparse cache alone has its row, sinks and a window.",
    "TriForce": "Its gain is at contexts of many thousand tokens, which these prompts are not:"
    " chapter 9 measures it there.",
    "DistillSpec": ("draft model",),
    "OSD": ("draft model that learns online",),
    "PARD": ("PARD, one pass",),
    "MLP speculator": ("MLP speculator",),
    "DFlash": ("block diffusion",),
    "Markov correction": ("Medusa, corrected",),
    "EAGLE": ("EAGLE-1, a chain", "EAGLE-1, a tree"),
    "EAGLE-2": ("EAGLE-2, a grown tree",),
    "EAGLE-3": ("EAGLE-3, a grown tree",),
    "HASS": "It is a way to train EAGLE's head, not another way to draft: chapter 13 compares the"
    " two trainings.",
    "multi-token prediction": ("multi-token prediction",),
    "Jacobi": ("Jacobi",),
    "Lookahead": ("Lookahead",),
    "confidence threshold": ("draft model, stops when unsure", "EAGLE-1, stops when unsure"),
    "SpecDec++": "It is a trained stop, and drafts as the draft model does: chapter 15 compares the"
    " stops on the same texts.",
    "SmartSpec": "It sets the draft length by the load of a server, and here one text runs at a"
    " time: chapter 17 has the load.",
    "BanditSpec": ("a bandit over lookup and EAGLE-1",),
    "shared noise": ("draft model, the target's noise",),
    "cascade drafting": (
        "cascade over prompt lookup",
        "draft model, then n-grams",
        "n-gram model over prompt lookup",
        "EAGLE-1, then n-grams",
    ),
    "staged speculation": ("cascade over prompt lookup",),
    "AMUSD": "It drafts on one device while the other verifies, and here there is one: chapter 15b"
    " runs it on a virtual clock.",
    "Saguaro": "It drafts for every outcome while the target verifies, which takes a second device:"
    " chapter 15b runs it on a virtual clock.",
    "PEARL": "It overlaps drafting and verifying in time, and one core does one thing at a time:"
    " chapter 15b runs it on a virtual clock.",
    "Medusa": ("Medusa, a chain", "Medusa, a tree", "Medusa, a tree × typical(0.09, 0.3)"),
    "Hydra": ("Hydra",),
    "SpecInfer": ("SpecInfer, two drafts merged",),
    "Sequoia": ("Sequoia",),
    "SpecExec": ("SpecExec",),
    "traversal verification": (
        "Sequoia × traversal_verification",
        "EAGLE-1, a tree × traversal_verification",
    ),
    "optimal multi-draft": "It is the bound on any rule for several drafts, found by a linear"
    " program: chapter 11 holds the rules against it.",
    "SpecTr": ("a tree drawn independently × k_seq(2)",),
    "BASS": "It is about several texts in a batch, and here one text runs at a time: chapter 16b"
    " has its loop.",
    "Falcon": "Its draft is not in the library, since DFlash and PARD draft a block too: chapter 12"
    " has them, and the catalogue says why.",
    "FR-Spec": "It is a smaller vocabulary for the draft, as EAGLE-3's row has one; it has no row of"
    " its own.",
    "P-EAGLE": "It is EAGLE-3 with all depths in one pass, and no such head ships.",
    "a trie of past texts": "What it finds, suffix decoding's index finds too, and that has a row.",
    "token-level intersection": "It is for a draft with another vocabulary, and here target and"
    " draft share one.",
    "DISCO": "It is a trained stop like SpecDec++'s: chapter 15 compares stops.",
    "confidence-scheduled verification": "It chooses among the drafts of many requests under load,"
    " and here one text runs at a time.",
    "Judge Decoding": "It needs labelled tokens, and a target whose judgement is worth learning.",
    "FLy": "Its verdict waits for later tokens, and every rule of the library is final at its place.",
    "speculative cascades": "It is exact for a mixture of two models, and all rows here are held"
    " against the target alone.",
}
"""{name on the map: names of the rows, or the reason for having none}."""

"""Schemas of the recordings: the fields that chapters, pages and tests read, by experiment."""


def fields(numbers="", **kinds):
    """Return the schema of an object with required fields."""
    kinds = dict.fromkeys(numbers.split(), NUMBER) | kinds
    return {"type": "object", "properties": kinds, "required": [*kinds]}


def rows(of, least=1):
    """Return the schema of a list with at least `least` items of one schema."""
    return {"type": "array", "items": of, "minItems": least}


def each(of):
    """Return the schema of a non-empty object whose values have one schema."""
    return {"type": "object", "additionalProperties": of, "minProperties": 1}


ROW = {"type": "string", "pattern": "^[0-9]+( [0-9]+)*$"}
"""Whole numbers in a text, one per prompt."""
TEXT, NUMBER, TRUTH = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
MAYBE = {"type": ["number", "null"]}
COUNTS = fields(
    rows=each(ROW),
    **dict.fromkeys(
        "tokens rounds accepted tested drafted levels empty reached tried".split(), ROW
    ),
)
INTERVAL = {**rows(NUMBER, 2), "maxItems": 2}
ABOUT = fields(
    "bytes",
    source=TEXT,
    chapter=TEXT,
    rule={"type": ["string", "null"]},
    lossless=TRUTH,
    minutes=MAYBE,
    trained=TRUTH,
)
"""What is known of a row of the scoreboard without a measurement."""
SPREAD = fields("value", interval=INTERVAL)
SUBLAYERS = rows({"type": "array"}, 0)
FOUND = fields("rate c", skip=SUBLAYERS, elsewhere=SPREAD)
PREDICTION = fields("c c_in_loop verify overhead target_seconds corrected", plain=MAYBE)
EXPLAINED = dict(speedup=SPREAD, tau=SPREAD, prediction=PREDICTION)
TIMED = dict(
    dtype=TEXT, domain=TEXT, temperature=NUMBER, tokens_per_second=each(NUMBER), **EXPLAINED
)
HELD_OUT = fields(
    **{
        domain: fields("bits_per_byte alpha argmax_agreement")
        for domain in ("code", "data", "prose", "all")
    }
)
PROFILE = fields("threads bandwidth", device=TEXT, throughput=each(NUMBER))
PASSES = fields(
    "parameters weight_bytes cache_bytes",
    model=TEXT,
    dtype=TEXT,
    packed=TRUTH,
    seconds=each(rows(NUMBER, 3)),
)
ACCURACIES = rows(rows(NUMBER))
BY_DEPTH = fields(mean=rows(NUMBER, 4), error=rows(NUMBER, 4), tokens=rows(NUMBER, 4))
DECODED = dict(tau=SPREAD, drafting=SPREAD, speedup=SPREAD)
GREEDY = fields("same", **DECODED)
RATES = fields(mean=rows(NUMBER, 4), error=rows(NUMBER, 4))
TRAINED = fields("texts steps bytes", command=TEXT, alpha=RATES, agrees=RATES)
RECALL = fields(mean=rows(NUMBER, 4), error=rows(NUMBER, 4), kept=fields("mean error"))
COUNTED = fields("rounds tau", rates=rows(NUMBER, 4), errors=rows(NUMBER, 4))
VOCABULARY = fields("tokens", alpha=fields("value error"), covered=fields("value"))
FITTED = "reading arithmetic overlap per_layer per_exchange per_step per_round per_draft per_row"
TESTED = dict(source=TEXT, setting=TEXT, workload=TEXT)
SHAPES = dict(batches=rows(NUMBER, 4), measured=rows(NUMBER, 4), held_out=rows(NUMBER, 4))
CELL = fields("batch k seconds low high")
"""A timed pass over k tokens of each of B sequences."""
GPU_MODE = fields(
    "tau",
    speedup=SPREAD,
    alpha=MAYBE,
    alone=fields("one verify draft predicted"),
    rounds=fields("target_seconds draft verify other plain predicted"),
)
GPU_STEPS = dict(
    card=fields("read_bandwidth copy_bandwidth", peak=fields("size flops")),
    passes=fields("parameters", rows=rows(CELL)),
    slices=fields("parameters", rows=rows(CELL)),
    quarter=fields("parameters", rows=rows(CELL)),
    drafts=fields("context", rows=rows(fields("batch drafted seconds", draft=TEXT, mode=TEXT))),
    experts=fields("experts chosen layers layers_of_the_whole", rows=rows(CELL)),
    rounds=fields(
        "gamma new_tokens",
        lossless=rows(fields(dtype=TEXT, mode=TEXT, diverges_at=MAYBE)),
        **{f"T = {t}": fields("turns", modes=each(GPU_MODE)) for t in (0, 1)},
    ),
    synthetic=fields(
        "context",
        target=TEXT,
        rows=rows(fields("batch gamma plain_seconds round_seconds", speedup=each(NUMBER))),
    ),
    trace=fields("gamma", rows=rows(fields("seconds", mode=TEXT, lane=TEXT))),
)
GPU_STEPS = {
    name: {
        "if": {"not": {"anyOf": [{"required": [r]} for r in ("error", "skipped")]}},
        "then": step,
    }
    for name, step in GPU_STEPS.items()
}
"""The steps of a GPU's recording; one that failed or was skipped says why instead."""
SCHEMAS = {
    "busy-machine": fields(
        "programs cores texts",
        settings=each({"type": "object"}),
        load_averages=each(rows(NUMBER)),
        rows=rows(
            fields("tokens threads", model=TEXT, setting=TEXT, load=TEXT, seconds=rows(NUMBER))
        ),
    ),
    "estimator": fields(
        "spread error",
        engine=fields(FITTED + " experts"),
        factors=each(NUMBER),
        mixtures=rows(fields("batch gamma tau measured fitted low high", **TESTED)),
        rows=rows(
            fields(
                "batch gamma tau measured datasheet held_out low high",
                **TESTED,
                **dict.fromkeys(("calibrated", "calibrated_low", "calibrated_high"), MAYBE),
            )
        ),
        shapes=rows(fields(**TESTED, **SHAPES)),
    ),
    "gpu": fields(
        dtype=TEXT,
        tiny=TRUTH,
        graphs=TRUTH,
        steps={"type": "object", "properties": GPU_STEPS, "minProperties": 1},
    ),
    "rounds": fields(
        "seed",
        about=TEXT,
        prompt=TEXT,
        rounds=rows(
            fields(
                "context accepted",
                before=TEXT,
                rows=rows(fields(words=rows(TEXT), p=rows(NUMBER), tests=rows({}, 0)), 2),
                token=fields("word", kind=TEXT, u=MAYBE),
                caches=fields(target=rows(NUMBER, 3), draft={"type": ["array", "null"]}),
            )
        ),
        run=fields("gamma", prompt=TEXT, rounds=rows(fields("context draft_cache accepted"), 4)),
    ),
    "answers": fields(
        "limit",
        rule=TEXT,
        answers=rows(
            fields("tokens target_passes accepted tested", kind=TEXT, request=TEXT, answer=TEXT), 6
        ),
    ),
    "race": fields(
        "race",
        about=TEXT,
        races=rows(
            fields(
                kind=TEXT,
                request=TEXT,
                speedups=rows(NUMBER),
                lanes=fields(
                    plain=rows(fields("at", words=rows(rows(TEXT, 2)))),
                    speculative=rows(fields("at", words=rows(rows(TEXT, 2)))),
                ),
            ),
            6,
        ),
    ),
    "batch-speed": fields(
        "context new_tokens turns",
        tables=each(fields(batches=rows(NUMBER), tokens=rows(NUMBER), seconds=rows(rows(NUMBER)))),
        gains=rows(
            fields(
                "batch gamma temperature own minimum",
                speedup=SPREAD,
                tokens_per_second=fields("plain drafted"),
            )
        ),
    ),
    "draft-lengths": fields(
        "temperature threads new_tokens prompts",
        dtype=TEXT,
        kinds=each(
            fields("turns", chains=rows(fields("gamma", name=TEXT, tau=SPREAD, speedup=SPREAD)))
        ),
    ),
    "rule-drift": fields("temperature mass places", drift=each(fields("most", mean=SPREAD))),
    "scoreboard-counts": fields(
        "gamma new_tokens batch",
        model=TEXT,
        dtype=TEXT,
        prompts_sha256=TEXT,
        about=each(ABOUT),
        absent={"type": "object", "additionalProperties": TEXT},
        named=each({"type": ["string", "array"]}),
        cells=rows(fields("temperature", kind=TEXT, methods=each(COUNTS))),
    ),
    "scoreboard-clocks": fields(
        "threads gamma turns context",
        model=TEXT,
        column=TEXT,
        device=TEXT,
        prompts_sha256=TEXT,
        passes=each(each(rows(NUMBER, 2))),
        rounds=each(each(each(rows(TEXT, 2)))),
        plain=each({"type": "object", "additionalProperties": rows(NUMBER)}),
        checks=rows(
            fields("temperature seconds plain", method=TEXT, kind=TEXT, dtype=TEXT, counts=COUNTS),
            least=0,
        ),
    ),
    "speed": fields(
        "gamma prompts_per_domain repeats",
        profile=PROFILE,
        packed=each(TRUTH),
        growth=fields(
            context=rows(NUMBER), pass_seconds=rows(NUMBER), seconds_per_token=rows(NUMBER)
        ),
        rows=rows(fields(alpha=SPREAD, drafters=each(fields(**EXPLAINED)), **TIMED), 12),
    ),
    "pass-times": fields(
        "context",
        profile=PROFILE,
        models=rows(
            fields(
                "parameters", model=TEXT, dtype=TEXT, packed=TRUTH, seconds=each(rows(NUMBER, 3))
            )
        ),
    ),
    "book-models": fields(
        "context",
        profile=PROFILE,
        passes=rows(PASSES, 4),
        drafting=rows(
            fields(
                "temperature turns target_seconds",
                domain=TEXT,
                gammas=each(
                    fields("c", speedup=SPREAD, tau=SPREAD, alpha=SPREAD, flags=rows(TEXT, 0))
                ),
            ),
            4,
        ),
    ),
    "next-words": fields(
        model=TEXT,
        story=TEXT,
        texts=each(TEXT),
        contexts=rows(fields(prompt=TEXT, words=rows(rows({}, 2)), tail=rows(rows(NUMBER, 2), 0))),
    ),
    "live-page": fields(
        "cores",
        browser=TEXT,
        bytes=each(NUMBER),
        milliseconds_from_press=each(NUMBER),
        rows=rows(
            fields(
                "gamma temperature prompts speedup predicted alpha c",
                format=TEXT,
                domain=TEXT,
                speedup_range=rows(NUMBER, 2),
                target_ms=rows(NUMBER),
            ),
            12,
        ),
    ),
    "live-smollm2": fields(
        "cores",
        browser=TEXT,
        races=rows(
            fields(
                "threads tokens tau alpha draft_ms",
                way=TEXT,
                kind=TEXT,
                kernel=TEXT,
                speedups=rows(NUMBER, 3),
                per_second=each(NUMBER),
                target_ms=rows(NUMBER, 8),
            )
        ),
    ),
    "blockwise-training": fields(
        target=TEXT,
        runs=rows(
            fields(
                "steps",
                regime=TEXT,
                loss_kind=TEXT,
                command=TEXT,
                held_out=fields(loss=rows(NUMBER), accuracy=rows(NUMBER)),
                blocks=fields(k=rows(NUMBER), all=rows(NUMBER)),
            )
        ),
    ),
    "training-losses": fields(
        "steps tokens held_out",
        draft=fields("parameters steps"),
        runs=rows(fields(source=TEXT, loss=TEXT), 3),
        predicts=each(each(NUMBER)),
    ),
    "online-learning": fields(
        "gamma every each mark",
        requests=each(rows(fields("accepted tested", topic=TEXT), 12)),
        curves=each(each(fields(alpha=rows(NUMBER, 12), gain=rows(SPREAD, 3)))),
    ),
    "eagle-smollm2": fields(
        heads=each(fields("texts", command=TEXT, alpha=BY_DEPTH, agrees=BY_DEPTH)),
        vocabulary=rows(VOCABULARY),
        decoded=each(fields("same", tau=SPREAD, speedup=SPREAD)),
        served=each(
            {
                "anyOf": [
                    fields(ours=fields("rounds", rates=rows(NUMBER)), version=TEXT),
                    fields(ours=fields("rounds", rates=rows(NUMBER)), refused=TEXT),
                ]
            }
        ),
    ),
    "eagle-ablations": fields(
        "texts epochs",
        target=TEXT,
        heads=each(fields(agrees=BY_DEPTH, alpha=BY_DEPTH)),
        vocabulary=rows(VOCABULARY),
        reliability=rows(fields("confidence accepted count")),
        shapes=rows(fields("temperature tau error", draft=TEXT), 8),
        example=fields(
            words=rows(TEXT, 3), laws=rows(fields("agrees", law=rows({"type": "array"})), 2)
        ),
    ),
    "eagle-norms": fields(
        "texts epochs", target=TEXT, heads=each(fields(agrees=BY_DEPTH, alpha=BY_DEPTH))
    ),
    "draft-recall": fields(
        models=each(fields("texts", heads=each(each(RECALL)), paths=each(fields("mean error"))))
    ),
    "gpu-heads-smollm2": fields(
        target=TEXT,
        texts=each(fields("texts tokens")),
        heads=each(
            fields(
                "tokens seen steps seconds parameters",
                recipe={"type": "object"},
                curve=rows(fields("spent seen", agrees=BY_DEPTH, alpha=BY_DEPTH), 5),
                held_out=each(fields(agrees=BY_DEPTH, alpha=BY_DEPTH)),
            )
        ),
    ),
    "heads-by-kind-smollm2": fields(
        "new_tokens prompts",
        target=TEXT,
        dtype=TEXT,
        heads=each(TEXT),
        counts=each(each(fields("tokens same", tau=SPREAD, acceptance=SPREAD))),
    ),
    "head-bits-smollm2": fields(
        "texts", heads=each(each(fields(agrees=rows(NUMBER, 4), alpha=rows(NUMBER, 4))))
    ),
    "formats-smollm2": fields(
        target=TEXT,
        passes=each(fields("bytes", seconds=each(rows(NUMBER, 3)))),
        decoded=each(
            each(
                fields(
                    "turns same seconds_per_token",
                    speedup=SPREAD,
                    kinds=each(fields(speedup=SPREAD, tau=SPREAD)),
                )
            )
        ),
    ),
    "parallel-heads-smollm2": fields(
        heads=each(TRAINED),
        gained=each(rows(SPREAD, 4)),
        decoded=each(fields(**{"T = 0": GREEDY, "T = 1": fields(**DECODED)})),
        served=each(fields("same texts", ours=COUNTED, vllm=COUNTED, version=TEXT)),
        commands=each(TEXT),
    ),
    "heads-at-equal-bytes": fields(
        target=TEXT, heads=each(fields(decoded=each(fields(**DECODED)))), gained=each(rows(SPREAD))
    ),
    "medusa-training": fields(
        "decay weight",
        target=TEXT,
        runs=rows(
            fields("steps seconds tokens rate own_loss", regime=TEXT, accuracies=each(ACCURACIES))
        ),
    ),
    "jacobi-and-stopping": fields(
        grids=fields(
            prompt=TEXT, runs=rows(fields(start=TEXT, rows=rows(fields("place accepted"))))
        ),
        drafts=fields(
            prompt=TEXT,
            target=TEXT,
            draft=TEXT,
            words=rows(TEXT),
            places=rows(fields("right", q=rows(NUMBER), h=rows(NUMBER))),
        ),
        acceptance=fields(
            "contexts",
            rows=rows(fields("temperature drawn chosen")),
            own=rows(fields("draft_temperature alpha")),
        ),
        rounds=rows(fields("temperature tau fed", domain=TEXT, method=TEXT)),
    ),
    "first-token-acceptance": fields(
        targets=each(
            fields(
                draft=TEXT,
                gammas=rows(NUMBER, 2),
                rows=rows(
                    fields(
                        "temperature texts tokens",
                        every=SPREAD,
                        first=each(SPREAD),
                        shuffled=each(SPREAD),
                        first_fall=SPREAD,
                        shuffled_fall=SPREAD,
                    ),
                    2,
                ),
            )
        )
    ),
    "cascade-speed": fields(
        profile=PROFILE,
        targets=each(
            fields(
                draft=TEXT, rows=rows(fields("turns", drafters=each(fields(**EXPLAINED)), **TIMED))
            )
        ),
    ),
    "draft-ageing": fields(
        "gamma new window rows_per_step tokens_per_row rate",
        target=TEXT,
        length=each(rows(rows(rows(NUMBER, 2)))),
        marks=rows(fields("step", alpha=each(each(SPREAD)), nats=each(NUMBER))),
    ),
    "losslessness": fields(
        architectures=rows(fields(kind=TEXT, outcome=TEXT)),
        rules=rows(fields(rule=TEXT, draft=TEXT, tag=TRUTH, distance=each(MAYBE))),
        drafters=rows(fields("tokens", drafter=TEXT, distance=each(NUMBER))),
        refused=rows(fields(asked=TEXT, error=TEXT, message=TEXT)),
    ),
    "mutation-testing": fields(
        "run score",
        modules=each(fields("killed survived")),
        survivors=rows(fields(name=TEXT, change=TEXT)),
    ),
    "page-sizes": fields(
        "openings archive_bytes", browser=TEXT, pages=rows(fields("wire_bytes load_ms", page=TEXT))
    ),
    "block-verification-gain": fields(
        "texts rounds", rows=rows(fields("gamma tokens as_block gain low high"))
    ),
    "token-trees": fields(
        rules=fields("laws vocabulary k", rows=each(each(NUMBER))),
        random_laws=fields("laws k_seq_below_walk", mean=each(NUMBER)),
        rates=each(rows(NUMBER)),
        growth=rows(fields("temperature nodes fed tokens", way=TEXT), 12),
        smollm2=rows(fields("temperature nodes fed tokens", way=TEXT), 6),
        rule_tokens=rows(fields("temperature tokens", rule=TEXT)),
        batches=rows(fields("temperature sequences batch tree tokens")),
        clock=fields(
            "draft overhead",
            target=each(NUMBER),
            rates=rows(NUMBER),
            shapes=each(fields("expected", parents=rows(NUMBER, 0), speedup=SPREAD)),
        ),
    ),
    "version-speed": fields(
        old=TEXT,
        new=TEXT,
        rows=rows(
            fields("temperature ratio", dtype=TEXT, method=TEXT, interval=INTERVAL, same_text=TRUTH)
        ),
    ),
    "early-exit-acceptance": fields(
        targets=each(
            fields(
                "layers places",
                rates=rows(NUMBER),
                agreement=rows(NUMBER),
                settled=rows(NUMBER),
                adapters=each(fields("rate agreement")),
                text=rows(TEXT),
                depth=rows(NUMBER),
            )
        )
    ),
    "layer-skip-search": fields(
        targets=each(
            fields(
                "layers places group",
                bytes=each(NUMBER),
                alone=rows(NUMBER),
                sets=TEXT,
                search=fields(
                    "evaluations",
                    offered=rows({"type": "array"}),
                    greedy=fields(best=FOUND, path=rows(fields("rate", skip=SUBLAYERS))),
                    random=fields(best=FOUND, so_far=rows(NUMBER)),
                    bayesian=fields(best=FOUND, so_far=rows(NUMBER)),
                ),
            )
        )
    ),
    "quantized-draft-acceptance": fields(
        targets=each(fields("places bytes", rows=rows(fields("bits agreement bytes", rate=SPREAD))))
    ),
    "self-draft-speed": fields(
        targets=each(
            fields(
                "gamma turns target_seconds layers",
                skip=SUBLAYERS,
                alone=fields("one verify shared", drafts=each(NUMBER)),
                reuse=fields("shared verify predicted_change", measured_change=SPREAD, gain=SPREAD),
                rows=rows(
                    fields(
                        "levels draft verify other from_costs c_alone predicted",
                        method=TEXT,
                        speedup=SPREAD,
                        alpha=SPREAD,
                        tau=SPREAD,
                    )
                ),
            )
        )
    ),
    "sparse-cache-speed": fields(
        "weights gamma temperature new",
        rows=rows(
            fields(
                "context cache_bytes turns places seconds everything",
                drafts=rows(
                    fields(
                        "tau c verify c_alone verify_alone predicted",
                        draft=TEXT,
                        speedup=SPREAD,
                        alpha=SPREAD,
                    )
                ),
            )
        ),
    ),
    "longer-training": fields(
        "tokens_per_step",
        before=fields("target_steps distil_steps", held_out=HELD_OUT),
        longer=fields("target_steps distil_steps", held_out=HELD_OUT),
    ),
    "model-free-tokens": fields(
        "new_tokens vocab_size datastore_tokens",
        answers=rows(fields(kind=TEXT, prompt=TEXT, answer=TEXT, reference=TEXT)),
        history=rows(fields(prompt=TEXT, answer=TEXT)),
        pieces=each(TEXT),
        rows=rows(
            fields(
                "answer tokens rounds drafted_rounds drafted_round_tokens nodes accepted tested",
                drafter=TEXT,
                size=MAYBE,
                kind=TEXT,
            )
        ),
    ),
    "engines": fields(
        "new_tokens gamma turns threads",
        batches=rows(NUMBER),
        state=each({}),
        refused={"type": "object"},
        switches=each(each(TEXT)),
        engines=each(
            each(
                each(
                    fields(
                        "texts",
                        tokens_per_second=fields(seconds=each(NUMBER), processor=each(NUMBER)),
                        differences=rows(fields("prompt place gap"), 0),
                        refused={"type": "object"},
                    )
                )
            )
        ),
        load=fields(
            "requests",
            alphas=rows(NUMBER),
            rows=rows(fields("load gamma measured simulated error error_apart")),
        ),
    ),
    "proposal-times": fields(
        "context vocab_size datastore_tokens",
        rows=each(fields("start median p95")),
        indexes=each(fields("seconds bytes")),
    ),
    "speed-smollm2": fields(
        "gamma", profile=PROFILE, rows=rows(fields(**TIMED)), passes=rows(PASSES, 2)
    ),
    "waits": fields("gamma new_tokens", methods=each(each(fields("reads uploads")))),
}
for name in ("scoreboard-counts-smollm2", "humaneval-counts", "humaneval-counts-smollm2"):
    SCHEMAS[name] = SCHEMAS["scoreboard-counts"]
SCHEMAS["scoreboard-clocks-smollm2"] = SCHEMAS["scoreboard-clocks"]

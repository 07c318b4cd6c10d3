"""What each kind of recording holds: the fields that chapters, pages and tests read."""


def fields(**kinds):
    return {"type": "object", "properties": kinds, "required": [*kinds]}


def rows(of, least=1):
    return {"type": "array", "items": of, "minItems": least}


def each(of):
    return {"type": "object", "additionalProperties": of, "minProperties": 1}


TEXT, NUMBER, TRUTH = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
MAYBE = {"type": ["number", "null"]}
SPREAD = fields(value=NUMBER, interval={**rows(NUMBER, 2), "maxItems": 2})
SUBLAYERS = rows({"type": "array"}, 0)
FOUND = fields(skip=SUBLAYERS, rate=NUMBER, c=NUMBER, elsewhere=SPREAD)
PREDICTION = fields(
    c=NUMBER,
    c_in_loop=NUMBER,
    verify=NUMBER,
    overhead=NUMBER,
    target_seconds=NUMBER,
    plain=MAYBE,
    corrected=NUMBER,
)
EXPLAINED = dict(speedup=SPREAD, tau=SPREAD, prediction=PREDICTION)
HELD_OUT = fields(
    **{
        domain: fields(bits_per_byte=NUMBER, alpha=NUMBER, argmax_agreement=NUMBER)
        for domain in ("code", "data", "prose", "all")
    }
)
PROFILE = fields(device=TEXT, threads=NUMBER, bandwidth=NUMBER, throughput=each(NUMBER))
PASSES = fields(
    model=TEXT,
    dtype=TEXT,
    packed=TRUTH,
    parameters=NUMBER,
    weight_bytes=NUMBER,
    cache_bytes=NUMBER,
    seconds=each(rows(NUMBER, 3)),
)
ACCURACIES = rows(rows(NUMBER))
BY_DEPTH = fields(mean=rows(NUMBER, 4), error=rows(NUMBER, 4), tokens=rows(NUMBER, 4))
DECODED = dict(tau=SPREAD, drafting=SPREAD, speedup=SPREAD)
GREEDY = fields(same=NUMBER, **DECODED)
RATES = fields(mean=rows(NUMBER, 4), error=rows(NUMBER, 4))
TRAINED = fields(command=TEXT, texts=NUMBER, steps=NUMBER, bytes=NUMBER, alpha=RATES, agrees=RATES)
COUNTED = fields(rounds=NUMBER, tau=NUMBER, rates=rows(NUMBER, 4), errors=rows(NUMBER, 4))
VOCABULARY = fields(
    tokens=NUMBER, alpha=fields(value=NUMBER, error=NUMBER), covered=fields(value=NUMBER)
)
SCHEMAS = {
    "round": fields(
        about=TEXT,
        prompt=TEXT,
        seed=NUMBER,
        rounds=rows(
            fields(
                before=TEXT,
                context=NUMBER,
                accepted=NUMBER,
                rows=rows(fields(words=rows(TEXT), p=rows(NUMBER), tests=rows({}, 0)), 2),
                token=fields(word=NUMBER, kind=TEXT, u=MAYBE),
                caches=fields(target=rows(NUMBER, 3), draft={"type": ["array", "null"]}),
            )
        ),
        run=fields(
            prompt=TEXT,
            gamma=NUMBER,
            rounds=rows(fields(context=NUMBER, draft_cache=NUMBER, accepted=NUMBER), 4),
        ),
    ),
    "serving": fields(
        context=NUMBER,
        new_tokens=NUMBER,
        turns=NUMBER,
        tables=each(fields(batches=rows(NUMBER), tokens=rows(NUMBER), seconds=rows(rows(NUMBER)))),
        gains=rows(
            fields(
                batch=NUMBER,
                gamma=NUMBER,
                temperature=NUMBER,
                speedup=SPREAD,
                own=NUMBER,
                minimum=NUMBER,
                tokens_per_second=fields(plain=NUMBER, drafted=NUMBER),
            )
        ),
    ),
    "scoreboard": fields(
        model=TEXT,
        clock=TEXT,
        threads=NUMBER,
        gamma=NUMBER,
        new_tokens=NUMBER,
        prompts_per_kind=NUMBER,
        methods=each(
            fields(
                source=TEXT,
                chapter=TEXT,
                rule={"type": ["string", "null"]},
                lossless=TRUTH,
                bytes=NUMBER,
                minutes=MAYBE,
                trained=TRUTH,
            )
        ),
        absent={"type": "object", "additionalProperties": TEXT},
        named=each({"type": ["string", "array"]}),
        rows=rows(
            fields(
                domain=TEXT,
                temperature=NUMBER,
                turns=NUMBER,
                plain=fields(
                    seconds=NUMBER, round=NUMBER, tokens_per_second=each(NUMBER), best=TEXT
                ),
                methods=each(
                    fields(
                        name=TEXT,
                        gamma=NUMBER,
                        levels=NUMBER,
                        nodes=NUMBER,
                        tau=SPREAD,
                        positions=rows(NUMBER, 0),
                        conditional=rows(MAYBE, 0),
                        empty=NUMBER,
                        used=NUMBER,
                        c=NUMBER,
                        verify=NUMBER,
                        overhead=NUMBER,
                        tokens_per_second=NUMBER,
                        speedup=SPREAD,
                        over_best=SPREAD,
                        formula=MAYBE,
                        from_costs=NUMBER,
                        same=NUMBER,
                    )
                ),
            )
        ),
        lengths=rows(
            fields(domain=TEXT, methods=each(fields(gamma=NUMBER, speedup=SPREAD))), least=0
        ),
    ),
    "speed": fields(
        profile=PROFILE,
        packed=each(TRUTH),
        gamma=NUMBER,
        prompts_per_domain=NUMBER,
        repeats=NUMBER,
        growth=fields(
            context=rows(NUMBER), pass_seconds=rows(NUMBER), seconds_per_token=rows(NUMBER)
        ),
        rows=rows(
            fields(
                dtype=TEXT,
                domain=TEXT,
                temperature=NUMBER,
                tokens_per_second=each(NUMBER),
                alpha=SPREAD,
                drafters=each(fields(**EXPLAINED)),
                **EXPLAINED,
            ),
            12,
        ),
    ),
    "memory": fields(
        profile=PROFILE,
        context=NUMBER,
        models=rows(
            fields(
                model=TEXT,
                dtype=TEXT,
                packed=TRUTH,
                parameters=NUMBER,
                seconds=each(rows(NUMBER, 3)),
            )
        ),
    ),
    "models": fields(
        profile=PROFILE,
        context=NUMBER,
        passes=rows(PASSES, 4),
        drafting=rows(
            fields(
                domain=TEXT,
                temperature=NUMBER,
                turns=NUMBER,
                target_seconds=NUMBER,
                gammas=each(
                    fields(speedup=SPREAD, tau=SPREAD, alpha=SPREAD, c=NUMBER, flags=rows(TEXT, 0))
                ),
            ),
            4,
        ),
    ),
    "next_words": fields(
        model=TEXT,
        story=TEXT,
        texts=each(TEXT),
        contexts=rows(fields(prompt=TEXT, words=rows(rows({}, 2)), tail=rows(rows(NUMBER, 2), 0))),
    ),
    "live": fields(
        cores=NUMBER,
        browser=TEXT,
        bytes=each(NUMBER),
        milliseconds_from_press=each(NUMBER),
        rows=rows(
            fields(
                format=TEXT,
                gamma=NUMBER,
                domain=TEXT,
                temperature=NUMBER,
                prompts=NUMBER,
                speedup=NUMBER,
                speedup_range=rows(NUMBER, 2),
                predicted=NUMBER,
                alpha=NUMBER,
                c=NUMBER,
                target_ms=rows(NUMBER),
            ),
            12,
        ),
    ),
    "blockwise": fields(
        target=TEXT,
        runs=rows(
            fields(
                regime=TEXT,
                loss_kind=TEXT,
                command=TEXT,
                steps=NUMBER,
                held_out=fields(loss=rows(NUMBER), accuracy=rows(NUMBER)),
                blocks=fields(k=rows(NUMBER), all=rows(NUMBER)),
            )
        ),
    ),
    "losses": fields(
        draft=fields(parameters=NUMBER, steps=NUMBER),
        steps=NUMBER,
        tokens=NUMBER,
        held_out=NUMBER,
        runs=rows(fields(source=TEXT, loss=TEXT), 3),
        predicts=each(each(NUMBER)),
    ),
    "online": fields(
        gamma=NUMBER,
        every=NUMBER,
        each=NUMBER,
        mark=NUMBER,
        requests=each(rows(fields(topic=TEXT, accepted=NUMBER, tested=NUMBER), 12)),
        curves=each(each(fields(alpha=rows(NUMBER, 12), gain=rows(SPREAD, 3)))),
    ),
    "eagle-smollm2": fields(
        heads=each(fields(command=TEXT, texts=NUMBER, alpha=BY_DEPTH, agrees=BY_DEPTH)),
        vocabulary=rows(VOCABULARY),
        decoded=each(fields(same=NUMBER, tau=SPREAD, speedup=SPREAD)),
        served=each(fields(ours=fields(rounds=NUMBER, rates=rows(NUMBER)), version=TEXT)),
    ),
    "eagle": fields(
        target=TEXT,
        texts=NUMBER,
        epochs=NUMBER,
        heads=each(fields(agrees=BY_DEPTH, alpha=BY_DEPTH)),
        vocabulary=rows(VOCABULARY),
        reliability=rows(fields(confidence=NUMBER, accepted=NUMBER, count=NUMBER)),
        shapes=rows(fields(draft=TEXT, temperature=NUMBER, tau=NUMBER, error=NUMBER), 8),
        example=fields(
            words=rows(TEXT, 3), laws=rows(fields(agrees=NUMBER, law=rows({"type": "array"})), 2)
        ),
    ),
    "heads-smollm2": fields(
        heads=each(TRAINED),
        gained=each(rows(SPREAD, 4)),
        decoded=each(fields(**{"T = 0": GREEDY, "T = 1": fields(**DECODED)})),
        served=each(fields(ours=COUNTED, vllm=COUNTED, same=NUMBER, texts=NUMBER, version=TEXT)),
        commands=each(TEXT),
    ),
    "heads": fields(
        target=TEXT, heads=each(fields(decoded=each(fields(**DECODED)))), gained=each(rows(SPREAD))
    ),
    "medusa": fields(
        target=TEXT,
        decay=NUMBER,
        weight=NUMBER,
        runs=rows(
            fields(
                regime=TEXT,
                steps=NUMBER,
                seconds=NUMBER,
                tokens=NUMBER,
                rate=NUMBER,
                own_loss=NUMBER,
                accuracies=each(ACCURACIES),
            )
        ),
    ),
    "stopping": fields(
        grids=fields(
            prompt=TEXT,
            runs=rows(fields(start=TEXT, rows=rows(fields(place=NUMBER, accepted=NUMBER)))),
        ),
        drafts=fields(
            prompt=TEXT,
            target=TEXT,
            draft=TEXT,
            words=rows(TEXT),
            places=rows(fields(q=rows(NUMBER), h=rows(NUMBER), right=NUMBER)),
        ),
        acceptance=fields(
            contexts=NUMBER,
            rows=rows(fields(temperature=NUMBER, drawn=NUMBER, chosen=NUMBER)),
            own=rows(fields(draft_temperature=NUMBER, alpha=NUMBER)),
        ),
        rounds=rows(fields(domain=TEXT, method=TEXT, temperature=NUMBER, tau=NUMBER, fed=NUMBER)),
    ),
    "openings": fields(
        targets=each(
            fields(
                draft=TEXT,
                gammas=rows(NUMBER, 2),
                rows=rows(
                    fields(
                        temperature=NUMBER,
                        texts=NUMBER,
                        tokens=NUMBER,
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
    "stages": fields(
        profile=PROFILE,
        targets=each(
            fields(
                draft=TEXT,
                rows=rows(
                    fields(
                        dtype=TEXT,
                        domain=TEXT,
                        temperature=NUMBER,
                        turns=NUMBER,
                        tokens_per_second=each(NUMBER),
                        drafters=each(fields(**EXPLAINED)),
                        **EXPLAINED,
                    )
                ),
            )
        ),
    ),
    "matrix": fields(
        architectures=rows(fields(kind=TEXT, outcome=TEXT)),
        rules=rows(fields(rule=TEXT, draft=TEXT, tag=TRUTH, distance=each(MAYBE))),
        drafters=rows(fields(drafter=TEXT, tokens=NUMBER, distance=each(NUMBER))),
        refused=rows(fields(asked=TEXT, error=TEXT, message=TEXT)),
    ),
    "mutation": fields(
        run=NUMBER,
        score=NUMBER,
        modules=each(fields(killed=NUMBER, survived=NUMBER)),
        survivors=rows(fields(name=TEXT, change=TEXT)),
    ),
    "site": fields(
        browser=TEXT,
        openings=NUMBER,
        archive_bytes=NUMBER,
        pages=rows(fields(page=TEXT, wire_bytes=NUMBER, load_ms=NUMBER)),
    ),
    "rules": fields(
        texts=NUMBER,
        rounds=NUMBER,
        rows=rows(
            fields(
                gamma=NUMBER, tokens=NUMBER, as_block=NUMBER, gain=NUMBER, low=NUMBER, high=NUMBER
            )
        ),
    ),
    "trees": fields(
        rules=fields(laws=NUMBER, vocabulary=NUMBER, k=NUMBER, rows=each(each(NUMBER))),
        random_laws=fields(laws=NUMBER, k_seq_below_walk=NUMBER, mean=each(NUMBER)),
        rates=each(rows(NUMBER)),
        growth=rows(
            fields(temperature=NUMBER, nodes=NUMBER, way=TEXT, fed=NUMBER, tokens=NUMBER), 12
        ),
        smollm2=rows(
            fields(temperature=NUMBER, nodes=NUMBER, way=TEXT, fed=NUMBER, tokens=NUMBER), 6
        ),
        judged=rows(fields(temperature=NUMBER, rule=TEXT, tokens=NUMBER)),
        batches=rows(
            fields(temperature=NUMBER, sequences=NUMBER, batch=NUMBER, tree=NUMBER, tokens=NUMBER)
        ),
        clock=fields(
            target=each(NUMBER),
            draft=NUMBER,
            overhead=NUMBER,
            rates=rows(NUMBER),
            shapes=each(fields(parents=rows(NUMBER, 0), expected=NUMBER, speedup=SPREAD)),
        ),
    ),
    "versions": fields(
        old=TEXT,
        new=TEXT,
        rows=rows(
            fields(
                dtype=TEXT,
                method=TEXT,
                temperature=NUMBER,
                ratio=NUMBER,
                interval={**rows(NUMBER, 2), "maxItems": 2},
                same_text=TRUTH,
            )
        ),
    ),
    "exits": fields(
        targets=each(
            fields(
                layers=NUMBER,
                places=NUMBER,
                rates=rows(NUMBER),
                agreement=rows(NUMBER),
                settled=rows(NUMBER),
                adapters=each(fields(rate=NUMBER, agreement=NUMBER)),
                text=rows(TEXT),
                depth=rows(NUMBER),
            )
        )
    ),
    "skips": fields(
        targets=each(
            fields(
                layers=NUMBER,
                places=NUMBER,
                bytes=each(NUMBER),
                alone=rows(NUMBER),
                group=NUMBER,
                sets=TEXT,
                search=fields(
                    evaluations=NUMBER,
                    offered=rows({"type": "array"}),
                    greedy=fields(best=FOUND, path=rows(fields(skip=SUBLAYERS, rate=NUMBER))),
                    random=fields(best=FOUND, so_far=rows(NUMBER)),
                    bayesian=fields(best=FOUND, so_far=rows(NUMBER)),
                ),
            )
        )
    ),
    "bits": fields(
        targets=each(
            fields(
                places=NUMBER,
                bytes=NUMBER,
                rows=rows(fields(bits=NUMBER, rate=SPREAD, agreement=NUMBER, bytes=NUMBER)),
            )
        )
    ),
    "ahead": fields(
        targets=each(fields(rows=fields(rounds=NUMBER, conditional=rows(SPREAD), tau=SPREAD)))
    ),
    "selfspeed": fields(
        targets=each(
            fields(
                gamma=NUMBER,
                turns=NUMBER,
                target_seconds=NUMBER,
                layers=NUMBER,
                skip=SUBLAYERS,
                alone=fields(one=NUMBER, verify=NUMBER, shared=NUMBER, drafts=each(NUMBER)),
                reuse=fields(
                    shared=NUMBER,
                    verify=NUMBER,
                    predicted_change=NUMBER,
                    measured_change=SPREAD,
                    gain=SPREAD,
                ),
                rows=rows(
                    fields(
                        method=TEXT,
                        levels=NUMBER,
                        speedup=SPREAD,
                        alpha=SPREAD,
                        tau=SPREAD,
                        draft=NUMBER,
                        verify=NUMBER,
                        other=NUMBER,
                        from_costs=NUMBER,
                        c_alone=NUMBER,
                        predicted=NUMBER,
                    )
                ),
            )
        )
    ),
    "sparse": fields(
        weights=NUMBER,
        gamma=NUMBER,
        temperature=NUMBER,
        new=NUMBER,
        rows=rows(
            fields(
                context=NUMBER,
                cache_bytes=NUMBER,
                turns=NUMBER,
                places=NUMBER,
                seconds=NUMBER,
                everything=NUMBER,
                drafts=rows(
                    fields(
                        draft=TEXT,
                        speedup=SPREAD,
                        alpha=SPREAD,
                        tau=NUMBER,
                        c=NUMBER,
                        verify=NUMBER,
                        c_alone=NUMBER,
                        verify_alone=NUMBER,
                        predicted=NUMBER,
                    )
                ),
            )
        ),
    ),
    "trained_on": fields(
        tokens_per_step=NUMBER,
        before=fields(target_steps=NUMBER, distil_steps=NUMBER, held_out=HELD_OUT),
        longer=fields(target_steps=NUMBER, distil_steps=NUMBER, held_out=HELD_OUT),
    ),
    "lookup": fields(
        new_tokens=NUMBER,
        vocab_size=NUMBER,
        datastore_tokens=NUMBER,
        answers=rows(fields(kind=TEXT, prompt=TEXT, answer=TEXT, reference=TEXT)),
        history=rows(fields(prompt=TEXT, answer=TEXT)),
        pieces=each(TEXT),
        rows=rows(
            fields(
                drafter=TEXT,
                size=MAYBE,
                kind=TEXT,
                answer=NUMBER,
                tokens=NUMBER,
                rounds=NUMBER,
                drafted_rounds=NUMBER,
                drafted_round_tokens=NUMBER,
                nodes=NUMBER,
                accepted=NUMBER,
                tested=NUMBER,
            )
        ),
    ),
    "engines": fields(
        new_tokens=NUMBER,
        gamma=NUMBER,
        turns=NUMBER,
        threads=NUMBER,
        batches=rows(NUMBER),
        note=TEXT,
        state=each({}),
        refused={"type": "object"},
        switches=each(each(TEXT)),
        engines=each(
            each(
                each(
                    fields(
                        tokens_per_second=fields(seconds=each(NUMBER), processor=each(NUMBER)),
                        texts=NUMBER,
                        differences=rows(fields(prompt=NUMBER, place=NUMBER, gap=NUMBER), 0),
                        refused={"type": "object"},
                    )
                )
            )
        ),
        load=fields(
            alphas=rows(NUMBER),
            requests=NUMBER,
            rows=rows(
                fields(
                    load=NUMBER,
                    gamma=NUMBER,
                    measured=NUMBER,
                    simulated=NUMBER,
                    error=NUMBER,
                    error_apart=NUMBER,
                )
            ),
        ),
    ),
    "drafting": fields(
        context=NUMBER,
        vocab_size=NUMBER,
        datastore_tokens=NUMBER,
        rows=each(fields(start=NUMBER, median=NUMBER, p95=NUMBER)),
        indexes=each(fields(seconds=NUMBER, bytes=NUMBER)),
    ),
    "smollm2": fields(
        profile=PROFILE,
        gamma=NUMBER,
        rows=rows(
            fields(
                dtype=TEXT,
                domain=TEXT,
                temperature=NUMBER,
                tokens_per_second=each(NUMBER),
                **EXPLAINED,
            )
        ),
        passes=rows(PASSES, 2),
    ),
}

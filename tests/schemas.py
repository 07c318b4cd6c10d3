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
ACCURACIES = rows(rows(NUMBER))
SCHEMAS = {
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
    "trained_on": fields(
        tokens_per_step=NUMBER,
        before=fields(target_steps=NUMBER, distil_steps=NUMBER, held_out=HELD_OUT),
        longer=fields(target_steps=NUMBER, distil_steps=NUMBER, held_out=HELD_OUT),
    ),
}

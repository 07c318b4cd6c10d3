"""The sizes of the shipped pair, and its model card, written from its report."""

from pathlib import Path

from specdec_lite.engine.transformer import TransformerConfig
from specdec_lite.loading.memory import native_size
from specdec_lite.texts.corpus import DOMAINS, HELD_OUT, PACKAGES
from specdec_lite.training.loop import Plan
from specdec_lite.training.token_streams import MIXTURE, VOCABULARY

TARGET = TransformerConfig(
    VOCABULARY,
    hidden_size=320,
    intermediate_size=896,
    num_layers=8,
    num_heads=5,
    num_kv_heads=5,
    head_size=64,
)
DRAFT = TransformerConfig(
    VOCABULARY,
    hidden_size=192,
    intermediate_size=512,
    num_layers=2,
    num_heads=3,
    num_kv_heads=3,
    head_size=64,
)

CARD = """# The shipped pair

Two small byte-level language models with one tokenizer, made to teach speculative decoding: a target and a draft that was
distilled on it. They continue Python source and Python documentation, and serve no other purpose.

| | layers | hidden | feed-forward | parameters | training in this run |
|---|---|---|---|---|---|
| target | {target.num_layers} | {target.hidden_size} | {target.intermediate_size} | {target_size:.1f} M | {target_steps} steps of {tokens} tokens |
| draft | {draft.num_layers} | {draft.hidden_size} | {draft.intermediate_size} | {draft_size:.1f} M | {draft_steps} steps on text, then {distil_steps} on the target's distributions |

Measures on held-out text (report.json contains all of them). α is the mean of Σ min(p, q) at temperature 1.

| domain | bits per byte, target | α | argmax agreement |
|---|---|---|---|
{rows}

- **Data.** The standard library of Python {python}: its source ({library:.1f} M tokens), its tests ({tests:.1f} M), the reference
  topics of `pydoc_data` ({docs:.2f} M){packages}, drawn with weights {mixture}. BPE of {vocabulary} entries. The last tenth of the steps ran at 1,024 tokens of context.
- **Held out as whole documents.** {held_out}. Tests named after a held-out module are left out as well, and so are lines of held-out topics that other topics repeat.
- **Measurement.** Every held-out token is scored once, in windows of 1,024 tokens that advance by 512. At least 512 tokens precede it where the document has them.
- **Command.** `{command}`, {date}, {machine}, torch {torch}, {hours:.1f} hours, commit {commit}.
- **License.** The weights: Apache-2.0, like this project. The text they were trained on: the Python Software Foundation License 2.0{licences}.
"""


def write_card(folder: Path, report: dict) -> None:
    """Write README.md.

    Args:
        folder: folder of the pair.
        report: measures by domain, and "training".
    """
    training = report["training"]
    millions = {name: count / 1e6 for name, count in training["stream_tokens"].items()}
    mixture = {name: MIXTURE[name] for name in millions}
    packages, licenses = "", ""
    if "packages" in millions:
        count = millions.pop("packages")
        packages = f"; the source of {', '.join(PACKAGES)} as installed ({count:.0f} M)"
        licenses = (
            "; that of the packages: their own, all permissive (BSD, MIT, MIT-CMU, Apache-2.0, PSF,"
            " public domain)"
        )
    plan = Plan(1, 1.0)
    card = CARD.format(
        target=TARGET,
        draft=DRAFT,
        target_size=native_size(TARGET).parameters / 1e6,
        draft_size=native_size(DRAFT).parameters / 1e6,
        tokens=plan.batch * plan.context,
        rows="\n".join(table_row(domain, report[domain]) for domain in (*DOMAINS, "all")),
        held_out="; ".join(f"{domain}: {', '.join(names)}" for domain, names in HELD_OUT.items()),
        mixture=mixture,
        packages=packages,
        licences=licenses,
        vocabulary=VOCABULARY,
        hours=training["seconds"] / 3600,
        **millions,
        **training,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def table_row(domain: str, measures: dict[str, float]) -> str:
    """Return one row of the card's table."""
    cells = [measures[name] for name in ("bits_per_byte", "alpha", "argmax_agreement")]
    return f"| {domain} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |"

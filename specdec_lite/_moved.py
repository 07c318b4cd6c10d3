"""Old names of modules, classes and functions, which work with a warning for this version."""

import importlib
import warnings
from importlib.abc import Loader
from importlib.machinery import ModuleSpec

MOVED = {
    "specdec_lite.acceptance.laws": "specdec_lite.acceptance.distributions",
    "specdec_lite.drafters.around": "specdec_lite.drafters.parts.wrapper",
    "specdec_lite.drafters.block_head": "specdec_lite.drafters.parts.block_head",
    "specdec_lite.drafters.chain": "specdec_lite.drafters.parts.chain",
    "specdec_lite.drafters.chunks": "specdec_lite.drafters.parts.chunks",
    "specdec_lite.drafters.feature_head": "specdec_lite.drafters.parts.feature_head",
    "specdec_lite.drafters.feature_session": "specdec_lite.drafters.parts.feature_session",
    "specdec_lite.drafters.grow": "specdec_lite.drafters.parts.expansion",
    "specdec_lite.drafters.growing": "specdec_lite.drafters.parts.tree_session",
    "specdec_lite.drafters.heads": "specdec_lite.drafters.parts.heads",
    "specdec_lite.drafters.indexes": "specdec_lite.drafters.parts.indexes",
    "specdec_lite.drafters.lengths": "specdec_lite.drafters.parts.lengths",
    "specdec_lite.drafters.lessons": "specdec_lite.drafters.parts.online_training",
    "specdec_lite.drafters.matches": "specdec_lite.drafters.parts.matches",
    "specdec_lite.drafters.mlp_state": "specdec_lite.drafters.parts.mlp_state",
    "specdec_lite.drafters.ngram_model": "specdec_lite.drafters.parts.ngram_model",
    "specdec_lite.drafters.own": "specdec_lite.drafters.parts.self_draft",
    "specdec_lite.drafters.parallel": "specdec_lite.drafters.parts.parallel",
    "specdec_lite.drafters.shaped": "specdec_lite.drafters.fixed_tree",
    "specdec_lite.drafters.shapes": "specdec_lite.drafters.parts.tree_shapes",
    "specdec_lite.drafters.words": "specdec_lite.drafters.parts.vocabulary",
    "specdec_lite.exercises": "specdec_book.exercises",
    "specdec_lite.loading.corpus": "specdec_lite.texts.corpus",
    "specdec_lite.loading.smollm2_tasks": "specdec_lite.texts.smollm2_tasks",
    "specdec_lite.measure.quoted": "specdec_book.recordings.models",
    "specdec_lite.measure.results": "specdec_book.recordings",
    "specdec_lite.results": "specdec_book.recordings",
    "specdec_lite.serving": None,
    "specdec_lite.serving.batch": "specdec_lite.batch",
    "specdec_lite.serving.clock": "specdec_lite.simulation.clock",
    "specdec_lite.serving.diagnose": "specdec_lite.diagnosis.diagnose",
    "specdec_lite.serving.estimate": "specdec_lite.simulation.estimate",
    "specdec_lite.serving.export": "specdec_lite.training.export",
    "specdec_lite.serving.export_parallel": "specdec_lite.training.export_parallel",
    "specdec_lite.serving.faults": "specdec_lite.diagnosis.faults",
    "specdec_lite.serving.goodput": "specdec_lite.simulation.goodput",
    "specdec_lite.serving.measuring": "specdec_lite.diagnosis.measuring",
    "specdec_lite.serving.metrics": "specdec_lite.diagnosis.metrics",
    "specdec_lite.serving.offline": "specdec_lite.diagnosis.offline",
    "specdec_lite.serving.report": "specdec_lite.diagnosis.report",
    "specdec_lite.serving.simulate": "specdec_lite.simulation.simulate",
    "specdec_lite.serving.verdict": "specdec_lite.diagnosis.verdict",
    "specdec_lite.training.acceptance": "specdec_lite.training.acceptance_predictor",
    "specdec_lite.training.anchored": "specdec_lite.training.anchors",
    "specdec_lite.training.self_text": "specdec_lite.training.frozen_target",
    "specdec_lite.training.shared_text": "specdec_lite.training.head_trainer",
    "specdec_lite.training.skipping": "specdec_lite.training.skip_acceptance",
    "specdec_lite.training.text": "specdec_lite.training.token_streams",
    "specdec_lite.viz": "specdec_book.viz",
}
"""Old module or package → what replaces it; None for a package whose modules went apart."""

RENAMED = {
    "specdec_lite.acceptance": {
        "BlockLaw": "BlockDistribution",
        "block_law": "block_distribution",
        "joint_law": "joint_distribution",
        "output_law": "output_distribution",
    },
    "specdec_lite.drafters": {
        "Growth": "ConfidenceTree",
        "Shape": "Limits",
        "ShapedDrafter": "FixedTreeDrafter",
        "grow": "expand_tree",
    },
    "specdec_lite.theory": {"token_count_law": "token_count_distribution"},
    "specdec_lite.training": {"initialise": "initialize"},
    "specdec_lite.training.draft": {
        "apart": "compare",
        "distil": "distill",
        "pieces": "text_windows",
        "target_law": "target_log_probs",
    },
}
"""Package or module → {old public name: new public name}."""


def new_name(module: str) -> str | None:
    """Return the name under which a moved module is found now, or None if it did not move.

    Args:
        module: full name, old or new.
    """
    package, rest = module, ""
    while package:
        if MOVED.get(package):
            return MOVED[package] + rest
        package, _, last = package.rpartition(".")
        rest = f".{last}{rest}"
    return None


def warn(old: str, new: str) -> None:
    """Warn that a name is deprecated, on behalf of the code that used it.

    Args:
        old: full name.
        new: full name.
    """
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=4)


def renamed_in(module: str, name: str) -> object:
    """Return what an old name of a module means now; a module's `__getattr__` calls this.

    Args:
        module: the module's `__name__`.
        name: the attribute that it does not have.

    Raises:
        AttributeError: the name is not an old name of this module.
    """
    new = RENAMED.get(module, {}).get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn(f"{module}.{name}", f"{module}.{new}")
    return getattr(importlib.import_module(module), new)


def find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of a moved module or package, or None if it did not move.

    Args:
        name: full old name.
    """
    if name in MOVED or new_name(name):
        return ModuleSpec(name, MovedModule(), is_package=MOVED.get(name, "") is None)
    return None


class MovedModule(Loader):
    """Imports a moved module under its old name: the very same module object."""

    def create_module(self, spec):
        """Return the moved module, or None for an empty package.

        Args:
            spec: of the old name.
        """
        self.spec = spec
        new = new_name(spec.name)
        if new is None:
            return None
        warn(spec.name, new)
        module = importlib.import_module(new)
        self.spec = module.__spec__
        return module

    def exec_module(self, module) -> None:
        """Restore the spec, which importing under the old name has replaced.

        Args:
            module: the moved module.
        """
        module.__spec__ = self.spec

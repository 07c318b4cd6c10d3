"""Sources of proposals: one file per family, one class per method. `chain` and `lengths` serve all.

`__init__.pyi` lists the public names; each is imported when it is first used.
"""

from specdec_lite import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)

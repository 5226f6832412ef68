"""Functions that only compiled code calls: LLVM optimizes them within their callers alone.

Numba optimizes every function and generates its machine code, and then links the function into
each caller, which is optimized as a whole. Where all calls are inlined, the first part is wasted.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import IRLegalization


class _LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """LLVM code of a function and of its callees, which has no address."""

    def finalize(self) -> None:
        """Link the callees; neither optimize nor load anything."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        return 0

    @property
    def codegen(self) -> _Unloaded:
        """Numba sets the environment of a function that it has loaded, which this one is not."""
        return _Unloaded()


class _Unloaded:
    """Replacement of Numba's code generator for functions without an address."""

    def set_env(self, name: str, environment: Any) -> None:
        """Ignore the environment."""


@register_pass(mutates_CFG=False, analysis_only=False)
class _UseLinkedLibrary(LoweringPass):  # type: ignore[misc]
    """Choose the library before Numba creates its own."""

    _name = "minigibbs_linked_library"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Give the state of the compilation its library."""
        state.library = _LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return True


class LinkedCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's pipeline, for functions that Python never calls."""

    def define_pipelines(self) -> list[Any]:
        """Return Numba's passes with one more."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_UseLinkedLibrary, IRLegalization)
        passes.finalize()
        return [passes]

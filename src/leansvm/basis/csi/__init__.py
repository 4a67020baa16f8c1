"""CSI: what the host decides (`selector`) and what the blocks compute (`in_block`)."""

from leansvm.basis.csi.selector import CSI

__all__ = ["CSI"]

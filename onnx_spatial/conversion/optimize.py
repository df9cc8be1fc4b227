"""Convert a model, and its chains of standard nodes that are spatial operators.

The operators are put in the place of their chains in memory, and converted with those of the file. A
chain is only rewritten where its operator became part of something else: a dilated convolution, a region
without blocks, a pair that cancels. All other chains stay as they are.
"""

from __future__ import annotations

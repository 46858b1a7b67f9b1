"""The one module that draws random numbers, except those that are secret (`secrets`).

`RANDOM` asks the operating system for each draw (about a microsecond), so it has no state:

- Nothing can seed it. The global generator of `random` belongs to the user's program, and tests
  reseed it: every process would back off alike.
- A forked process (Spark's workers) does not repeat the draws of its parent.

State machines are given a number from [0, 1) or a function that draws one, as they are the time.
"""

from __future__ import annotations

import random
from typing import Final

RANDOM: Final = random.SystemRandom()

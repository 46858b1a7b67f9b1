from __future__ import annotations

import pytest

from ottla.broker.serving.apis import SERVED, handler_of
from ottla.wire.messages import message


@pytest.mark.parametrize("api_key", SERVED)
def test_served_versions_exist_and_have_a_handler(api_key: int) -> None:
    served = SERVED[api_key]
    low, high = message(api_key, request=True).versions
    assert low <= served.min_version <= served.max_version <= high
    assert callable(handler_of(api_key))

"""While much is imported, no garbage is collected; then it is as it was."""

from __future__ import annotations

import gc

import pytest
from penstock.base.importing import importing


@pytest.mark.parametrize("on", [True, False])
def test_collection_is_off_in_the_block_and_as_before_after_it(on):
    before = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(ImportError), importing():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() == on
    finally:
        (gc.enable if before else gc.disable)()

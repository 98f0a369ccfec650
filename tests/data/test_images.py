"""Images of every mode that PIL opens are the pixels that they show, or are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedbench.data.images import of_images
from fedbench.errors import DataError

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (4, 5), dtype=np.uint8)
RGB = RNG.integers(0, 256, (4, 5, 3), dtype=np.uint8)
ALPHA = RNG.integers(0, 255, (4, 5), dtype=np.uint8)
WIDE = RNG.integers(0, 65536, (4, 5)).astype(np.uint16)


def palette(colours: np.ndarray, clear: int | None = None) -> Any:
    """An image (h, w) whose numbers name the colours (h, w, 3) in an order of their own."""
    flat = colours.reshape(-1, 3)
    order = np.random.default_rng(1).permutation(len(flat))
    image = Image.fromarray(np.argsort(order).astype(np.uint8).reshape(colours.shape[:2]), mode="P")
    image.putpalette(flat[order].ravel().tolist())
    if clear is not None:
        image.info["transparency"] = int(np.argsort(order)[clear])
    return image


def with_alpha(colours: np.ndarray, alpha: Any) -> np.ndarray:
    alpha = np.broadcast_to(np.asarray(alpha, dtype=np.uint8), colours.shape[:2])
    return np.concatenate([colours, alpha[..., None]], axis=2)


def of_grey(levels: np.ndarray) -> np.ndarray:
    return np.repeat(levels[..., None], 3, axis=2)


CLEAR = np.where(np.arange(20).reshape(4, 5) == 7, 0, 255)
SHOWN: dict[str, tuple[list[Any], list[np.ndarray]]] = {
    "1": ([Image.fromarray(GREY > 99)], [(255 * (GREY > 99)).astype(np.uint8)]),
    "L": ([Image.fromarray(GREY)], [GREY]),
    "LA": ([Image.fromarray(np.stack([GREY, ALPHA], 2), mode="LA")], [np.stack([GREY, ALPHA], 2)]),
    "RGB": ([Image.fromarray(RGB)], [RGB]),
    "RGBA": ([Image.fromarray(with_alpha(RGB, ALPHA))], [with_alpha(RGB, ALPHA)]),
    "palette of grey": ([palette(of_grey(GREY))], [GREY]),
    "palette of colours": ([palette(RGB)], [RGB]),
    "palette with a clear pixel": ([palette(RGB, clear=7)], [with_alpha(RGB, CLEAR)]),
    "grey palette beside colours": ([palette(of_grey(GREY)), palette(RGB)], [of_grey(GREY), RGB]),
    "L beside RGB": ([Image.fromarray(GREY), Image.fromarray(RGB)], [of_grey(GREY), RGB]),
    "LA beside RGB": (
        [Image.fromarray(np.stack([GREY, ALPHA], 2), mode="LA"), Image.fromarray(RGB)],
        [with_alpha(of_grey(GREY), ALPHA), with_alpha(RGB, 255)],
    ),
    "I;16": ([Image.fromarray(WIDE)], [WIDE.astype(np.float32)]),
    "I": ([Image.fromarray(WIDE.astype(np.int32) + 2**24)], [WIDE.astype(np.float64) + 2**24]),
    "F": ([Image.fromarray(GREY.astype(np.float32) / 7)], [GREY.astype(np.float32) / 7]),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", SHOWN)
def test_pixels_are_those_that_an_image_shows(kind: str) -> None:
    """Images of a training column, and the same, the other way round, of a test column."""
    images, expected = SHOWN[kind]
    train, test = of_images([("train", images), ("test", images[::-1])])
    assert (train.dtype, test.dtype) == (expected[0].dtype, expected[0].dtype)
    np.testing.assert_array_equal(train, np.stack(expected))
    np.testing.assert_array_equal(test, np.stack(expected[::-1]))


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (
            [Image.fromarray(RGB), Image.fromarray(RGB).convert("CMYK")],
            "holds an image of mode CMYK in row 1",
        ),
        ([Image.fromarray(RGB).convert("YCbCr")], "holds an image of mode YCbCr in row 0"),
        ([Image.fromarray(RGB).convert("HSV")], "holds an image of mode HSV in row 0"),
        ([Image.fromarray(GREY), Image.fromarray(GREY[:3])], "holds images of 5 x 4 and of 5 x 3"),
        ([Image.fromarray(GREY), Image.fromarray(WIDE)], "holds images of 8 bits and of more bits"),
        ([Image.fromarray(GREY), None], "is empty in row 1"),
    ],
)
def test_other_images_are_refused_in_one_line(images: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=f"^the column x {said}"):
        of_images([("the column x", images)])

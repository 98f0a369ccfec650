"""Images as PIL opens them, as arrays of one shape: what their pixels are, whatever their mode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedbench.errors import DataError, refusing

_LEVELS = {
    "1": "L",
    "L": "L",
    "LA": "LA",
    "La": "LA",
    "RGB": "RGB",
    "RGBX": "RGB",
    "RGBA": "RGBA",
    "RGBa": "RGBA",
}
"""The mode with the same pixels in 8 bits a channel; that of P follows from its palette."""
_WIDE = ("I;16", "I;16B", "I;16L", "I", "F")
"""Grey levels of more than 8 bits: they are kept as numbers, and are not divided by 255."""


def of_images(columns: Sequence[tuple[str, Iterable[Any]]]) -> list[np.ndarray]:
    """Images (n, h, w) or (n, h, w, c) of each column, uint8, or floats where they have more than 8 bits.
    `columns`: the name in error lines, and PIL images.

    All get the channels that hold every one: grey images become coloured where others are, and where one has
    an alpha channel all do. A palette's numbers are replaced by its colours. Raises DataError for other
    modes, and unless all have one size.
    """
    read = [[*_arrays(where, images)] for where, images in columns]
    every = [image for own in read for image in own]
    sizes = [*dict.fromkeys(f"{image.shape[1]} x {image.shape[0]}" for image in every)]
    kinds = [*dict.fromkeys("8 bits" if image.dtype == np.uint8 else "more bits" for image in every)]
    for what in (sizes, kinds):
        if what[1:]:
            raise DataError(
                f"{columns[0][0]} holds images of {what[0]} and of {what[1]}; one kind is expected"
            )
    if kinds == ["more bits"]:
        single = all(np.array_equal(image.astype(np.float32), image, equal_nan=True) for image in every)
        return [np.stack(own)[..., 0].astype(np.float32 if single else np.float64) for own in read]
    channels = {image.shape[2] for image in every}
    colour, alpha = bool(channels & {3, 4}), bool(channels & {2, 4})
    arrays = [np.stack([_widened(image, colour, alpha) for image in own]) for own in read]
    return arrays if colour or alpha else [images[..., 0] for images in arrays]


def _arrays(where: str, images: Iterable[Any]) -> Iterable[np.ndarray]:
    """The pixels (h, w, channels) of each image: grey, grey and alpha, RGB, or RGBA."""
    with refusing(f"{where} cannot be read"):
        for row, image in enumerate(images):
            if image is None:
                raise DataError(f"{where} is empty in row {row}")
            plain = _plain(image)
            if plain.mode not in (*_LEVELS, *_WIDE):
                what = f"an image of mode {plain.mode} in row {row}; one of grey levels or RGB is expected"
                raise DataError(f"{where} holds {what}")
            pixels = np.asarray(plain)
            yield pixels if pixels.ndim == 3 else pixels[..., None]


def _plain(image: Any) -> Any:
    """The image in the mode of `_LEVELS` that has its pixels; others as they are."""
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")
        if (np.asarray(image)[..., 3] == 255).all():
            image = image.convert("RGB")
        if (np.ptp(np.asarray(image)[..., :3], axis=2) == 0).all():  # a palette of grey levels
            image = image.convert("LA" if image.mode == "RGBA" else "L")
    return image if image.mode not in _LEVELS else image.convert(_LEVELS[image.mode])


def _widened(image: np.ndarray, colour: bool, alpha: bool) -> np.ndarray:
    """The same pixels (h, w, channels) with three colours, and with an alpha channel, if asked for."""
    grey_or_rgb, opacity = (
        image[..., : 3 if image.shape[2] > 2 else 1],
        image[..., 3 if image.shape[2] > 2 else 1 :],
    )
    if colour and grey_or_rgb.shape[2] == 1:
        grey_or_rgb = np.repeat(grey_or_rgb, 3, axis=2)
    if alpha and not opacity.shape[2]:
        opacity = np.full((*image.shape[:2], 1), 255, dtype=np.uint8)
    return np.concatenate([grey_or_rgb, opacity], axis=2)

"""Pictures of FITS images: their pixels, other layouts, and hostile files."""

import gzip
import json
import zlib
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from astropy.io import fits as astropy_fits

from serde_chain.cli.files import files_in, save
from serde_chain.cli.fits import is_gzipped_fits, most_pixels, picture, pixels_in


def fits(pixels: Any, **more: object) -> bytes:
    """A file with one image; ``more`` are further cards."""
    types = {"u1": 8, "i2": 16, "i4": 32, "i8": 64, "f4": -32, "f8": -64}
    axes = {f"NAXIS{at}": size for at, size in enumerate(reversed(pixels.shape), 1)}
    cards = {"SIMPLE": "T", "BITPIX": types[pixels.dtype.str[1:]], "NAXIS": pixels.ndim, **axes, **more}
    text = "".join(f"{f'{name:<8}= {value:>20} / a comment':<80}" for name, value in cards.items()) + f"{'END':<80}"
    data = pixels.astype(pixels.dtype.newbyteorder(">")).tobytes()
    head, body = (-(-len(part) // 2880) * 2880 for part in (text, data))
    return bytes(text.ljust(head).encode() + data.ljust(body, b"\0"))


def seen(png: bytes | None) -> Any:
    assert png is not None
    return matplotlib.image.imread(BytesIO(png), format="png")


def message(value: Any) -> Any:
    return SimpleNamespace(
        value=lambda: value, key=lambda: b"M 51", topic=lambda: "t", partition=lambda: 0, offset=lambda: 0
    )


def star(kind: str = "f4", side: int = 63) -> Any:
    """A star, below and left of the middle, over noise."""
    y, x = np.mgrid[:side, :side]
    noise = np.random.default_rng(1).normal(0, 2, (side, side))
    return (100 * np.exp(-((x - 10) ** 2 + (y - 20) ** 2) / 8) + noise + 20).astype(kind)


@pytest.mark.parametrize("kind", ["u1", "i2", "i4", "i8", "f4", "f8"])
@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
def test_pixels(kind: str, wrap: Any) -> None:
    image = seen(picture(wrap(fits(star(kind)))))
    assert image.shape == (252, 252)  # 4 times as large
    assert np.unravel_index(image.argmax(), image.shape) == (62 * 4 - 20 * 4, 40) or image[(62 - 20) * 4, 40] == 1
    assert 0.05 < np.median(image) < 0.6  # the noise is seen
    assert (image[::4, ::4] == image[3::4, 3::4]).all()


@pytest.mark.parametrize("kind", ["u1", "i2", "i4", "f4", "f8"])
def test_files_of_astropy(kind: str) -> None:
    pixels = star(kind)
    file = BytesIO()
    image = astropy_fits.PrimaryHDU(pixels, astropy_fits.Header({"OBJECT": "M 51", "EXPTIME": 30.0}))
    # As in Rubin's alerts, the variance and a table follow in extensions.
    astropy_fits.HDUList([image, astropy_fits.ImageHDU(pixels * 0), astropy_fits.BinTableHDU()]).writeto(file)
    assert (seen(picture(file.getvalue())) == seen(picture(fits(pixels)))).all()
    assert is_gzipped_fits(gzip.compress(file.getvalue()))


def test_other_layouts() -> None:
    whole = seen(picture(fits(star())))
    assert (seen(picture(fits(np.stack([star(), star() * 0])))) == whole).all()  # a cube: the first plane
    assert np.allclose(seen(picture(fits(star(), BSCALE=-1.0))), 1 - whole, atol=0.01)
    assert not seen(picture(fits(np.full((5, 5), np.nan, "f4")))).any()
    assert not seen(picture(fits(np.full((5, 5), 7, "i4")))).any()
    for value in (np.inf, 1e308, -1e308):
        pixels = star("f8")
        pixels[5, 5:15] = value
        assert seen(picture(fits(pixels))).shape == (252, 252)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SIMPLE  =",
        b"\x1f\x8b",
        b"SIMPLE  = " + b"x" * 5000,
        fits(star())[:3000],
        fits(star(), BITPIX=7),
        fits(star(), NAXIS1=-1),
        fits(star(), NAXIS1=10**9),
        fits(star(), NAXIS1="x" * 30),
        fits(np.zeros(9, "f4")),
        b"\xff" * 2880,
        gzip.compress(fits(star()))[:500],
    ],
    ids=lambda data: str(len(data)),
)
def test_what_is_no_image_has_no_picture(data: bytes) -> None:
    assert picture(data) is None


@pytest.mark.full
def test_a_bomb_is_not_decompressed() -> None:
    """Seconds: 300 MB are compressed, and memory is traced."""
    bomb = zlib.compressobj(1, wbits=31)
    head = fits(np.zeros((1000, 1000), "f8"))
    data = bomb.compress(head) + b"".join(bomb.compress(bytes(1 << 20)) for _ in range(300)) + bomb.flush()
    assert is_gzipped_fits(data)
    import tracemalloc

    tracemalloc.start()
    try:
        assert seen(picture(data)).shape == (1000, 1000)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_cutouts_are_saved_with_pictures(tmp_path: Path) -> None:
    stamp = gzip.compress(fits(star()))
    value = {"objectId": "ZTF1", "cutoutScience": {"fileName": "a", "stampData": stamp}, "other": gzip.compress(b"a")}
    assert [(name, suffix) for name, _, suffix in files_in(value)] == [(".cutoutScience.stampData", ".fits.gz")]
    message = SimpleNamespace(
        topic=lambda: "t", partition=lambda: 0, offset=lambda: 7, key=lambda: None, value=lambda: value
    )
    saved = save(message, tmp_path)
    file, png = saved.images
    assert (file.name, png.name) == (
        "t-0-7.cutoutScience.stampData.fits.gz",
        "t-0-7.cutoutScience.stampData.fits.gz.png",
    )
    assert file.read_bytes() == stamp
    assert seen(png.read_bytes()).shape == (252, 252)
    assert json.loads(saved.path.read_text())["objectId"] == "ZTF1"


@pytest.mark.full
def test_a_picture_has_no_more_pixels_than_its_bytes_allow() -> None:
    for side in (512, 1000):
        assert pixels_in(fits(np.zeros((side, side), "u1"))) == side * side
    assert pixels_in(gzip.compress(fits(np.zeros((512, 512), "f4")))) == 512 * 512
    for hostile in (np.zeros((1000, 1000), "u1"), np.zeros((600, 600), "f8"), np.zeros((2, 500_000), "i2")):
        assert pixels_in(gzip.compress(fits(hostile))) == 0
        assert picture(gzip.compress(fits(hostile))) is None
    noise = gzip.compress(fits(star(side=900)))
    assert pixels_in(noise) == 810_000
    assert picture(noise) is not None
    assert pixels_in(b"SIMPLE  = no header that ends") == pixels_in(b"\x1f\x8bnoise") == 0


@pytest.mark.parametrize("count", [12, 200])
def test_the_pictures_of_a_record_have_no_more_pixels_than_its_bytes_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Twelve images of a KB took 8 s of CPU time."""
    image = gzip.compress(fits(np.zeros((500, 500), "u1")))
    drawn: list[int] = []

    def noted(data: bytes) -> bytes | None:
        drawn.append(pixels_in(data))
        return picture(data)

    monkeypatch.setattr("serde_chain.cli.files.picture", noted)
    saved = save(message({f"cutout{at}": image for at in range(count)}), tmp_path)
    assert 0 < sum(drawn) <= most_pixels(count * len(image))
    assert sum(path.name.endswith(".fits.gz") for path in saved.images) == count
    assert sum(path.name.endswith(".png") for path in saved.images) == len(drawn)


def test_pictures_of_real_cut_outs_are_all_drawn(tmp_path: Path) -> None:
    """As in ZTF's alerts, thirty of them."""
    image = gzip.compress(fits(star()))
    saved = save(message({f"cutout{at}": image for at in range(30)}), tmp_path)
    assert sum(path.name.endswith(".png") for path in saved.images) == 30

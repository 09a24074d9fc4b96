"""Tags of a photograph: EXIF and XMP inside the JPEG, and the same as JSON beside it. The picture itself is not encoded again.

EXIF has time, geographic place with its accuracy, direction and lens, which photogrammetry programs read. XMP and JSON
also have the pose in the structure's frame with standard deviations, the planned GSD and the motion blur. EXIF needs Pillow (extra
`photographs`).
"""

import math
import os
import struct
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import msgspec

from companion.core.errors import UserError
from companion.core.exif import DATE_ORIGINAL, EXIF_IFD, OFFSET_ORIGINAL, SUBSECOND_ORIGINAL
from companion.core.frames import rotation_matrix
from companion.core.messages import Capture
from companion.core.refined_poses import pose_source
from companion.planning.camera import PayloadCamera

NAMESPACE = "urn:companion:photograph:1"
SOI, APP0, APP1, SOS = 0xFFD8, 0xFFE0, 0xFFE1, 0xFFDA
EXIF_HEAD, XMP_HEAD = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
SEGMENT_MAX = 65533
# Numbers of EXIF 2.3 (JEITA CP-3451C).
MODEL, GPS_IFD, EXPOSURE_TIME = 0x0110, 0x8825, 0x829A
FOCAL_LENGTH, LENS_MODEL = 0x920A, 0xA434
GPS_VERSION, LATITUDE_REF, LATITUDE, LONGITUDE_REF, LONGITUDE, ALTITUDE_REF, ALTITUDE = range(7)
GPS_TIME, DIRECTION_REF, DIRECTION, DATUM, GPS_DATE, H_ERROR = 7, 16, 17, 18, 29, 31
EXIF_VERSION = 0x9000
LEVEL_SINE = 0.17  # within 10° of the vertical, the direction is that of the picture's upper edge


class TagError(UserError):
    """A picture cannot be tagged; one line."""


class PhotographTags(msgspec.Struct, frozen=True, kw_only=True):
    """What is written, also as JSON; positions in m, rotations (w, x, y, z), `None` where not known."""

    id: int
    item: str
    row: int
    column: int
    attempt: int
    outcome: str
    image_index: int
    utc: str | None  # ISO 8601
    camera: str
    focal_length_mm: float | None
    exposure_s: float
    gsd_m: float | None  # at the planned distance
    blur_px: float | None
    bundle: str  # "" none seen: then the pose in it is null
    p_MC: tuple[float, ...] | None
    q_MC: tuple[float, ...] | None
    p_WC: tuple[float, ...] | None
    q_WC: tuple[float, ...] | None
    position_std_m: float | None
    attitude_std_rad: float | None
    covariance: (
        tuple[float, ...] | None
    )  # diagonal of 6x6: position m², rotation rad²; in flight an upper bound for each axis
    pose_source: str  # "flight", or "adjustment": of the whole flight, after it
    latitude_deg: float | None
    longitude_deg: float | None
    altitude_m: float | None
    position_error_m: float | None  # horizontal, of the geographic place
    altitude_error_m: float | None
    direction_deg: float | None  # of the optical axis from north, clockwise


def tags_of(
    capture: Capture, camera: PayloadCamera, utc_offset_s: float, refined: tuple[float, ...] | None = None
) -> PhotographTags:
    """The tags of a photograph; utc_offset_s: UTC minus companion time, NaN unknown.

    refined: diagonal of the covariance of a pose that was found after the flight (`companion.core.refined_poses`).
    """
    utc = None
    if math.isfinite(utc_offset_s):
        utc = datetime.fromtimestamp(capture.stamp_s + utc_offset_s, UTC).isoformat(timespec="milliseconds")
    geo = capture.geo if capture.geo is not None else (math.nan, math.nan, math.nan)
    position_std, attitude_std = _finite(capture.position_std_m), _finite(capture.attitude_std_rad)
    covariance = refined
    if refined is None and position_std is not None and attitude_std is not None:
        covariance = (*[position_std**2] * 3, *[attitude_std**2] * 3)
    return PhotographTags(
        id=capture.id,
        item=capture.item,
        row=capture.row,
        column=capture.column,
        attempt=capture.attempt,
        outcome=capture.outcome,
        image_index=capture.image_index,
        utc=utc,
        camera=camera.name,
        focal_length_mm=camera.focal_length_mm,
        exposure_s=camera.exposure_s,
        gsd_m=_finite(capture.gsd_m),
        blur_px=_finite(capture.blur_px),
        bundle=capture.bundle,
        p_MC=_all_finite(capture.p_MC),
        q_MC=_all_finite(capture.q_MC),
        p_WC=_all_finite(capture.p_WC),
        q_WC=_all_finite(capture.q_WC),
        position_std_m=position_std,
        attitude_std_rad=attitude_std,
        covariance=covariance,
        pose_source=pose_source(refined is not None),
        latitude_deg=_finite(geo[0]),
        longitude_deg=_finite(geo[1]),
        altitude_m=_finite(geo[2]),
        position_error_m=_finite(capture.geo_std_m) if capture.geo is not None else None,
        altitude_error_m=_finite(capture.geo_v_std_m) if capture.geo is not None else None,
        direction_deg=_direction_deg(capture),
    )


def _direction_deg(capture: Capture) -> float | None:
    if not all(map(math.isfinite, capture.q_WC)):
        return None
    R = rotation_matrix(capture.q_WC)
    east, north = float(R[0, 2]), float(R[1, 2])
    if math.hypot(east, north) < LEVEL_SINE:
        east, north = -float(R[0, 1]), -float(R[1, 1])
    return math.degrees(math.atan2(east, north)) % 360.0


def tagged(jpeg: bytes, tags: PhotographTags, name: str = "picture") -> bytes:
    """The same JPEG with the tags in the place of its EXIF and XMP; what else its EXIF held is kept.

    Raises `TagError` for bytes that are no JPEG, and when Pillow is missing.
    """
    segments, rest = _segments(jpeg, name)
    kept = [s for s in segments if not (s[0] == APP1 and s[1].startswith((EXIF_HEAD, XMP_HEAD)))]
    before = [s for s in kept if s[0] == APP0]
    after = [s for s in kept if s[0] != APP0]
    former = next((s[1] for s in segments if s[0] == APP1 and s[1].startswith(EXIF_HEAD)), None)
    own = [(APP1, _exif(tags, former, name)), (APP1, XMP_HEAD + xmp(tags).encode())]
    parts = [struct.pack(">H", SOI)]
    for marker, content in (*before, *own, *after):
        if len(content) > SEGMENT_MAX:
            raise TagError(f"{name}: its EXIF data has {len(content)} bytes, at most {SEGMENT_MAX} fit")
        parts.append(struct.pack(">HH", marker, len(content) + 2) + content)
    return b"".join(parts) + rest


def write_tags(source: Path, target: Path, tags: PhotographTags) -> None:
    """Write a tagged copy of a picture and its JSON; whole or not at all. Raises `TagError`."""
    try:
        data = tagged(source.read_bytes(), tags, source.name)
        partial = target.with_suffix(target.suffix + ".part")
        partial.write_bytes(data)
        os.replace(partial, target)
        target.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(tags), indent=1))
    except OSError as error:
        raise TagError(f"{error.filename or target}: {error.strerror or error}") from None


def xmp(tags: PhotographTags) -> str:
    """The XMP packet (ISO 16684-1): own names, and the accuracies as photogrammetry programs read them."""
    values: dict[str, str] = {}
    for key, value in msgspec.to_builtins(tags).items():
        if value is None or value == "":
            continue
        words = value if isinstance(value, (list, tuple)) else [value]
        name = "".join(part.capitalize() if part.islower() else part for part in key.split("_"))
        values[f"companion:{name}"] = " ".join(str(word) for word in words)
    if tags.position_error_m is not None:
        values["Camera:GPSXYAccuracy"] = f"{tags.position_error_m:.3f}"
    if tags.altitude_error_m is not None:
        values["Camera:GPSZAccuracy"] = f"{tags.altitude_error_m:.3f}"
    attributes = "\n   ".join(f"{key}={quoteattr(value)}" for key, value in values.items())
    return (
        '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n<x:xmpmeta xmlns:x="adobe:ns:meta/">\n'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">\n'
        f'  <rdf:Description rdf:about="" xmlns:companion="{NAMESPACE}" xmlns:Camera="http://pix4d.com/camera/1.0/"\n'
        f'   {attributes}/>\n</rdf:RDF>\n</x:xmpmeta>\n<?xpacket end="w"?>'
    )


def _exif(tags: PhotographTags, former: bytes | None, name: str) -> bytes:
    try:
        from PIL import Image, TiffImagePlugin
    except ImportError:
        raise TagError("photographs cannot be tagged: Pillow is missing; install the extra 'photographs'") from None
    exif = Image.Exif()
    try:
        if former is not None:
            exif.load(former)
        own, gps = exif.get_ifd(EXIF_IFD), exif.get_ifd(GPS_IFD)
    except Exception as error:  # noqa: BLE001 - Pillow raises many kinds for broken EXIF
        raise TagError(f"{name}: its EXIF data cannot be read: {error}") from None

    def rational(value: float, denominator: int) -> Any:
        return TiffImagePlugin.IFDRational(round(value * denominator), denominator)

    exif.setdefault(MODEL, tags.camera)
    own.setdefault(EXIF_VERSION, b"0231")
    own.setdefault(LENS_MODEL, tags.camera)
    own.setdefault(EXPOSURE_TIME, _ratio(tags.exposure_s, TiffImagePlugin.IFDRational))
    if tags.focal_length_mm is not None:
        own[FOCAL_LENGTH] = rational(tags.focal_length_mm, 1000)
    if tags.utc is not None:
        when = datetime.fromisoformat(tags.utc)
        own[DATE_ORIGINAL] = f"{when:%Y:%m:%d %H:%M:%S}"
        own[SUBSECOND_ORIGINAL] = f"{when.microsecond // 1000:03d}"
        own[OFFSET_ORIGINAL] = "+00:00"
        gps[GPS_DATE] = f"{when:%Y:%m:%d}"
        gps[GPS_TIME] = (
            rational(when.hour, 1),
            rational(when.minute, 1),
            rational(when.second + when.microsecond * 1e-6, 1000),
        )
    latitude, longitude, altitude = tags.latitude_deg, tags.longitude_deg, tags.altitude_m
    if latitude is not None and longitude is not None:
        gps[GPS_VERSION] = b"\x02\x03\x00\x00"
        gps[DATUM] = "WGS-84"
        gps[LATITUDE_REF], gps[LONGITUDE_REF] = "N" if latitude >= 0 else "S", "E" if longitude >= 0 else "W"
        for key, degrees in ((LATITUDE, abs(latitude)), (LONGITUDE, abs(longitude))):
            whole = math.floor(degrees)
            minutes = math.floor((degrees - whole) * 60.0)
            seconds = (degrees - whole) * 3600.0 - 60.0 * minutes
            gps[key] = (rational(whole, 1), rational(minutes, 1), rational(seconds, 100_000))
    if altitude is not None:
        gps[ALTITUDE_REF], gps[ALTITUDE] = bytes([altitude < 0]), rational(abs(altitude), 1000)
    if tags.position_error_m is not None:
        gps[H_ERROR] = rational(tags.position_error_m, 1000)
    if tags.direction_deg is not None:
        gps[DIRECTION_REF], gps[DIRECTION] = "T", rational(tags.direction_deg, 100)
    exif[EXIF_IFD], exif[GPS_IFD] = dict(own), dict(gps)
    data: bytes = exif.tobytes()
    return data if data.startswith(EXIF_HEAD) else EXIF_HEAD + data


def _ratio(value: float, kind: Any) -> Any:
    """1/500 for 0.002."""
    ratio = Fraction(value).limit_denominator(100_000)
    return kind(ratio.numerator, ratio.denominator)


def _segments(jpeg: bytes, name: str) -> tuple[list[tuple[int, bytes]], bytes]:
    """Marker and content of the segments before the picture, and the rest from the first that is not an APP segment."""
    if len(jpeg) < 4 or int.from_bytes(jpeg[:2], "big") != SOI:
        raise TagError(f"{name}: is no JPEG")
    found, at = [], 2
    while at + 4 <= len(jpeg):
        marker, length = struct.unpack_from(">HH", jpeg, at)
        if not APP0 <= marker <= APP0 + 15:
            break
        end = at + 2 + length
        if length < 2 or end > len(jpeg):
            raise TagError(f"{name}: is a broken JPEG: a segment ends behind the file")
        found.append((marker, jpeg[at + 4 : end]))
        at = end
    if at + 2 > len(jpeg) or jpeg[at] != 0xFF:
        raise TagError(f"{name}: is a broken JPEG: no picture behind its header")
    return found, jpeg[at:]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _all_finite(values: tuple[float, ...]) -> tuple[float, ...] | None:
    return tuple(map(float, values)) if all(map(math.isfinite, values)) else None

"""Tags of photographs: read back by Pillow and exiftool; pictures of a card brought together with a log."""

import io
import json
import shutil
import subprocess
from datetime import UTC, datetime

import msgspec
import pytest
from click.testing import CliRunner
from PIL import Image

from companion.core.enums import CaptureOutcome
from companion.core.messages import TOPIC_OF, Capture, PayloadStatus
from companion.payload.matching import (
    MatchError,
    by_index,
    by_name,
    by_time,
    failed_counts,
    photographs_of,
    pictures_in,
)
from companion.payload.tags import EXIF_IFD, GPS_IFD, TagError, tagged, tags_of, write_tags, xmp
from companion.recording.writer import LogWriter
from companion.view.photographs import photographs
from tests.payload.rig import CAMERA

UTC_OFFSET_S = 1_790_000_000.0
HALF = 0.5**0.5


def capture(id: int = 1, index: int = 0, **changes: object) -> Capture:
    """Looks north and level from 34.0000123° south."""
    fields = {
        "stamp_s": 100.25 + 2.0 * id, "id": id, "item": "first pier", "row": 0, "column": id - 1, "attempt": 1,
        "outcome": CaptureOutcome.TAKEN, "reason": "", "image_index": index, "file": "", "blur_px": 0.3, "gsd_m": 0.00085,
        "p_WC": (1.0, 2.0, 3.0), "q_WC": (HALF, -HALF, 0.0, 0.0), "bundle": "pier", "p_MC": (0.1, -0.2, 5.0),
        "q_MC": (0.0, 1.0, 0.0, 0.0), "position_std_m": 0.012, "attitude_std_rad": 0.004, "distance_m": 5.0,
        "geo": (-34.0000123, 151.2000456, 62.125), "geo_std_m": 1.3, "geo_v_std_m": 2.4,
    }  # fmt: skip
    return Capture(**(fields | changes))


def jpeg(width: int = 64, height: int = 48, exif: Image.Exif | None = None) -> bytes:
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((width, height)).convert("RGB").save(
        buffer, "JPEG", exif=Image.Exif() if exif is None else exif
    )
    return buffer.getvalue()


def tags(**changes: object):
    return tags_of(capture(**changes), CAMERA, UTC_OFFSET_S)


def degrees(parts) -> float:
    whole, minutes, seconds = map(float, parts)
    return whole + minutes / 60 + seconds / 3600


def test_pillow_reads_place_time_direction_and_lens():
    picture = Image.open(io.BytesIO(tagged(jpeg(), tags())))
    exif = picture.getexif()
    own, gps = exif.get_ifd(EXIF_IFD), exif.get_ifd(GPS_IFD)
    assert (gps[1], gps[3]) == ("S", "E")
    assert degrees(gps[2]) == pytest.approx(34.0000123, abs=1e-8)
    assert degrees(gps[4]) == pytest.approx(151.2000456, abs=1e-8)
    assert float(gps[6]) == pytest.approx(62.125) and gps[5] in (0, b"\x00")
    assert float(gps[31]) == pytest.approx(1.3) and gps[16] == "T" and float(gps[17]) == pytest.approx(0.0, abs=0.01)
    when = datetime.fromtimestamp(102.25 + UTC_OFFSET_S, UTC)
    assert own[0x9003] == f"{when:%Y:%m:%d %H:%M:%S}" and own[0x9291] == "250" and own[0x9011] == "+00:00"
    assert gps[29] == f"{when:%Y:%m:%d}" and [float(v) for v in gps[7]][2] == pytest.approx(when.second + 0.25)
    assert float(own[0x920A]) == 35.0 and own[0xA434] == CAMERA.name and float(own[0x829A]) == pytest.approx(0.002)


def test_exiftool_reads_place_accuracy_and_pose(tmp_path):
    if shutil.which("exiftool") is None:
        pytest.skip("exiftool is not installed (Debian: libimage-exiftool-perl)")
    (tmp_path / "a.jpg").write_bytes(tagged(jpeg(), tags()))
    output = subprocess.run(["exiftool", "-json", "-n", tmp_path / "a.jpg"], capture_output=True, check=True).stdout
    (read,) = json.loads(output)
    assert read["GPSLatitude"] == pytest.approx(-34.0000123, abs=1e-7) and read["GPSAltitude"] == pytest.approx(62.125)
    assert read["GPSHPositioningError"] == pytest.approx(1.3) and read["GPSImgDirection"] == pytest.approx(
        0.0, abs=0.01
    )
    assert read["FocalLength"] == 35.0 and read["DateTimeOriginal"].startswith("20") and "Warning" not in read
    assert read["Bundle"] == "pier" and read["Pmc"] == "0.1 -0.2 5.0" and read["GPSXYAccuracy"] == pytest.approx(1.3)
    assert read["GPSZAccuracy"] == pytest.approx(2.4)


def test_the_picture_itself_is_not_encoded_again():
    original = jpeg()
    with_tags = tagged(original, tags())
    scan = original[original.index(b"\xff\xdb") :]
    assert with_tags.endswith(scan)
    assert tagged(with_tags, tags()) == with_tags  # tagging again replaces the tags


def test_other_exif_of_the_camera_is_kept():
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    exif.get_ifd(EXIF_IFD)[0x8827] = 200
    read = Image.open(io.BytesIO(tagged(jpeg(exif=exif), tags()))).getexif()
    assert read[0x010F] == "Maker" and read.get_ifd(EXIF_IFD)[0x8827] == 200
    assert read.get_ifd(GPS_IFD)[1] == "S"


def test_xmp_has_pose_covariance_and_gsd():
    packet = Image.open(io.BytesIO(tagged(jpeg(), tags(item='a "b" <c>')))).info["xmp"].decode()
    assert packet == xmp(tags(item='a "b" <c>'))
    for piece in (
        'companion:PMC="0.1 -0.2 5.0"',
        'companion:GsdM="0.00085"',
        'Camera:GPSXYAccuracy="1.300"',
        'Camera:GPSZAccuracy="2.400"',
    ):
        assert piece.lower() in packet.lower(), piece
    assert "companion:Covariance=" in packet and "&lt;c&gt;" in packet


def test_without_a_vertical_accuracy_of_the_receiver_none_is_given():
    packet = xmp(tags(geo_v_std_m=float("nan")))
    assert "GPSXYAccuracy" in packet and "GPSZAccuracy" not in packet


def test_a_photograph_without_pose_and_place_has_time_and_lens_only():
    nan = float("nan")
    bare = tags(
        geo=None, bundle="", p_WC=(nan,) * 3, q_WC=(nan,) * 4, p_MC=(nan,) * 3, q_MC=(nan,) * 4, position_std_m=nan,
        attitude_std_rad=nan, gsd_m=nan, blur_px=nan,
    )  # fmt: skip
    exif = Image.open(io.BytesIO(tagged(jpeg(), bare))).getexif()
    assert 0x9003 in exif.get_ifd(EXIF_IFD) and 2 not in exif.get_ifd(GPS_IFD) and 17 not in exif.get_ifd(GPS_IFD)
    assert bare.p_MC is None and bare.covariance is None


def test_direction_of_a_picture_of_an_underside_is_that_of_its_upper_edge():
    assert tags(q_WC=(1.0, 0.0, 0.0, 0.0)).direction_deg == pytest.approx(180.0)  # looks up, the edge to the south


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"", "is no JPEG"), (b"\x89PNG....", "is no JPEG"), (b"\xff\xd8\xff\xe0\xff\xffx", "ends behind the file"),
     (b"\xff\xd8\xff\xe0\x00\x04ab", "no picture behind its header")],
)  # fmt: skip
def test_what_is_no_picture_is_refused_with_one_line(data, problem):
    with pytest.raises(TagError, match=problem) as error:
        tagged(data, tags(), "DSC1.JPG")
    assert str(error.value).startswith("DSC1.JPG: ") and "\n" not in str(error.value)


def test_a_sidecar_holds_the_same(tmp_path):
    (tmp_path / "in.jpg").write_bytes(jpeg())
    write_tags(tmp_path / "in.jpg", tmp_path / "out.jpg", tags())
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["bundle"] == "pier" and written["p_MC"] == [0.1, -0.2, 5.0] and written["gsd_m"] == 0.00085
    assert len(written["covariance"]) == 6 and (tmp_path / "in.jpg").read_bytes() == jpeg()


# --- a card and a log --------------------------------------------------------------------------------------------------


def card(folder, count, names="DSC{:05d}.JPG", first=7, taken_s=None):
    folder.mkdir()
    for i in range(count):
        exif = Image.Exif()
        if taken_s is not None:
            exif.get_ifd(EXIF_IFD)[0x9003] = f"{datetime.fromtimestamp(taken_s(i), UTC):%Y:%m:%d %H:%M:%S}"
        (folder / names.format(first + i)).write_bytes(jpeg(exif=exif))
    return folder


def log_of(path, captures):
    tables = json.dumps(msgspec.to_builtins(CAMERA))
    writer = LogWriter(path, {"payload_camera_tables": tables, "run": "{}"}, start_s=100.0)
    for message in (*captures, PayloadStatus(stamp_s=100.0, connected=True, problem="", utc_offset_s=UTC_OFFSET_S)):
        writer.put(TOPIC_OF[type(message)], message, message.stamp_s)
    writer.close()
    return path


def test_the_command_tags_a_card_by_the_cameras_count(tmp_path):
    folder = card(tmp_path / "card", 4)
    captures = [capture(1, 20), capture(2, 21), capture(4, 23)]
    log = log_of(tmp_path / "flight.mcap", captures)
    result = CliRunner().invoke(photographs, ["tag", str(folder), str(log)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        f"3 pictures tagged in {folder / 'tagged'}",
        "1 pictures without a photograph in the log, the first: DSC00009.JPG",
    ]
    assert json.loads((folder / "tagged/DSC00010.json").read_text())["id"] == 4
    again = CliRunner().invoke(photographs, ["tag", str(folder), str(log)])
    assert again.exit_code == 2 and "exists already" in again.output


@pytest.mark.parametrize(
    ("stamp", "status", "line"),
    [
        ({"stamp_s": 102.25}, 0, "1 pictures tagged in"),
        ({}, 0, "poses.json: an earlier version wrote it, without times: whether it is of this flight is not known"),
        ({"stamp_s": 512.25}, 2, "poses.json: its photograph 1 was taken at another time: it is of another flight"),
    ],
)
def test_the_command_takes_the_poses_of_this_flight_only(tmp_path, stamp, status, line):
    folder, log = card(tmp_path / "card", 1), log_of(tmp_path / "flight.mcap", [capture(1, 20)])
    pose = {"id": 1, "attempt": 1, "bundle": "second_pier", "p_MC": [9.0, 9.0, 9.0], "q_MC": [1.0, 0.0, 0.0, 0.0],
            "position_std_m": 0.01, "attitude_std_rad": 0.002, "covariance": [[1e-4] * 6] * 6} | stamp  # fmt: skip
    poses = tmp_path / "poses.json"
    poses.write_text(json.dumps({"command": "calibrate photographs", "details": {"photographs": [pose]}}))
    result = CliRunner().invoke(photographs, ["tag", str(folder), str(log), "--poses", str(poses)])
    assert result.exit_code == status and line in result.output.splitlines()[0], result.output
    written = folder / "tagged/DSC00007.json"
    assert written.exists() == (status == 0)
    assert not written.exists() or json.loads(written.read_text())["bundle"] == "second_pier"


def test_pictures_are_matched_by_name_index_and_time(tmp_path):
    captures = photographs_of([capture(id, 10 + id) for id in (3, 1, 2)])
    assert [c.id for c in captures] == [1, 2, 3]
    folder = card(tmp_path / "a", 3, taken_s=lambda i: UTC_OFFSET_S + 102.25 + 2.0 * i + 30.0)
    files = pictures_in(folder)
    indexed = by_index(files, captures, None, folder)
    assert [p.name for p, _ in indexed.pairs] == ["DSC00007.JPG", "DSC00008.JPG", "DSC00009.JPG"]
    timed = by_time(files, captures, UTC_OFFSET_S, 30.0, 0.9, folder)
    assert [(p.name, c.id) for p, c in timed.pairs] == [(p.name, c.id) for p, c in indexed.pairs]
    assert by_time(files, captures, UTC_OFFSET_S, 0.0, 0.9, folder).pairs == []
    named = [msgspec.structs.replace(c, file=f"/DCIM/100/DSC0000{10 - c.id}.JPG") for c in captures]
    assert [p.name for p, _ in by_name(files, named).pairs] == ["DSC00009.JPG", "DSC00008.JPG", "DSC00007.JPG"]


@pytest.mark.parametrize("folder", ["100MSDCF", "101MSDCF", "copied"])
def test_a_picture_whose_name_two_photographs_have_belongs_to_one_of_its_folder_or_to_none(tmp_path, folder):
    pictures = pictures_in(card(tmp_path / folder, 2))  # DSC00007, DSC00008
    first, second, third = (
        capture(id, 10 + id, file=f"/DCIM/{kept}MSDCF/DSC0000{number}.JPG")
        for id, kept, number in ((1, 100, 7), (2, 101, 7), (3, 100, 8))
    )
    found = by_name(pictures, [first, second, third])
    if folder == "copied":
        assert [c.id for _, c in found.pairs] == [3] and found.without_picture == [first, second]
        assert [p.name for p in found.without_photograph] == ["DSC00007.JPG"]
    else:
        own, other = (first, second) if folder == "100MSDCF" else (second, first)
        assert sorted(c.id for _, c in found.pairs) == sorted((own.id, 3)) and found.without_picture == [other]


def test_a_picture_whose_count_two_photographs_have_belongs_to_none(tmp_path):
    """The count began again in the flight."""
    folder = card(tmp_path / "card", 2)
    captures = [capture(1, 0), capture(2, 1), capture(3, 0)]
    found = by_index(pictures_in(folder), captures, None, folder)
    assert [(p.name, c.id) for p, c in found.pairs] == [("DSC00008.JPG", 2)]
    assert [c.id for c in found.without_picture] == [1, 3] and len(found.without_photograph) == 1


def test_a_late_or_repeated_photograph_counts_once_and_lost_ones_not():
    lost = capture(1, -1, outcome=CaptureOutcome.LOST)
    late = capture(1, 4, late=True)
    second = capture(1, 5, attempt=2)
    assert [c.image_index for c in photographs_of([lost, late, second, second])] == [4, 5]


@pytest.mark.parametrize(
    ("count", "indices", "problem"),
    [(3, (0, 1), "3 pictures, and the camera counted 2 from 0 to 1"), (1, (-1, -1), "did not count")],
)
def test_a_card_that_does_not_fit_the_log_is_refused(tmp_path, count, indices, problem):
    folder = card(tmp_path / "card", count)
    captures = [capture(i + 1, index) for i, index in enumerate(indices)]
    with pytest.raises(MatchError, match=problem):
        by_index(pictures_in(folder), captures, None, folder)


def with_a_failure(count=10, failed=5):
    """Photographs of which one failed: the camera counted it, and stored no file."""
    captures = [capture(id, 19 + id, stamp_s=100.0 + 4.0 * id) for id in range(1, count + 1)]
    captures[failed - 1] = capture(failed, 19 + failed, outcome=CaptureOutcome.REFUSED, reason="failed")
    return captures


def test_a_failed_photograph_has_no_picture(tmp_path):
    captures = with_a_failure()
    pictures = pictures_in(card(tmp_path / "card", 9, first=101))
    for first_index in (None, 20):
        pairs = by_index(
            pictures, photographs_of(captures), first_index, tmp_path / "card", failed_counts(captures)
        ).pairs
        assert {c.id: int(p.stem[-3:]) - 100 for p, c in pairs} == {
            id: id if id < 5 else id - 1 for id in range(1, 11) if id != 5
        }


def test_a_picture_from_before_the_flight_in_the_place_of_a_failed_one_is_refused(tmp_path):
    folder, log = card(tmp_path / "card", 10, first=100), log_of(tmp_path / "flight.mcap", with_a_failure())
    result = CliRunner().invoke(photographs, ["tag", str(folder), str(log)])
    assert result.exit_code == 2 and not (folder / "tagged").exists()
    assert "10 pictures, and the camera counted 10 from 20 to 29 in the log, 1 of them failed" in result.output


def test_a_failed_photograph_whose_number_the_next_one_has_leaves_nothing_out():
    captures = [capture(1, 5), capture(2, 6, outcome=CaptureOutcome.REFUSED), capture(3, 6)]
    assert failed_counts([*captures, capture(4, -1, outcome=CaptureOutcome.REFUSED)]) == frozenset()


@pytest.mark.parametrize("ahead_s", [0.0, -3600.0], ids=["clock right", "clock an hour behind"])
def test_pictures_whose_times_contradict_the_log_are_refused_by_their_counts(tmp_path, ahead_s):
    """A test picture before the flight, and one of the flight that was deleted: the numbers agree."""
    captures = [capture(id, 19 + id, stamp_s=100.0 + 4.0 * id) for id in range(1, 11)]
    stamps_s = [90.0] + [c.stamp_s for c in captures if c.id != 5]
    folder = card(tmp_path / "card", 10, first=100, taken_s=lambda i: UTC_OFFSET_S + ahead_s + stamps_s[i])
    with pytest.raises(
        MatchError, match="DSC00101.JPG was taken 14 s after DSC00100.JPG, and photograph 2 of the log 4 s"
    ):
        by_index(pictures_in(folder), captures, None, folder)
    (folder / "DSC00100.JPG").unlink()
    with pytest.raises(
        MatchError, match="DSC00105.JPG was taken 20 s after DSC00101.JPG, and photograph 5 of the log 16 s"
    ):
        by_index(pictures_in(folder), captures, 20, folder)


def test_a_camera_clock_of_whole_seconds_does_not_contradict_the_log(tmp_path):
    captures = [capture(id, 19 + id, stamp_s=100.49 + 2.3 * id) for id in range(1, 11)]
    folder = card(tmp_path / "card", 10, taken_s=lambda i: int(captures[i].stamp_s) + UTC_OFFSET_S)
    assert len(by_index(pictures_in(folder), captures, None, folder).pairs) == 10


def test_two_pictures_of_one_moment_are_refused(tmp_path):
    folder = card(tmp_path / "card", 2, taken_s=lambda i: UTC_OFFSET_S + 102.25)
    with pytest.raises(MatchError, match="DSC00007.JPG and DSC00008.JPG are both within 1.5 s of photograph 1"):
        by_time(pictures_in(folder), [capture()], UTC_OFFSET_S, 0.0, 1.5, folder)


@pytest.mark.parametrize("content", ["empty", "missing"])
def test_a_folder_without_pictures_is_refused(tmp_path, content):
    folder = tmp_path / "card"
    if content == "empty":
        folder.mkdir()
    with pytest.raises(MatchError):
        pictures_in(folder)


def test_a_digit_that_is_no_number_in_the_name_of_a_picture_is_a_letter(tmp_path):
    folder = card(tmp_path / "card", 1)
    (folder / "wall_5²6.jpg").write_bytes((folder / "DSC00007.JPG").read_bytes())
    assert [picture.name for picture in pictures_in(folder)] == ["DSC00007.JPG", "wall_5²6.jpg"]

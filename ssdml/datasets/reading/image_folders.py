"""Folders and zip files of images or texts: the folder of each names its class."""

from __future__ import annotations

import lzma
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NoReturn

import numpy as np

from ssdml.datasets.base import RawItems
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.image_names import is_image_name
from ssdml.datasets.pixels import (
    HEIF,
    Pixels,
    image_formats,
    is_hidden,
    pixels,
    stack_images,
    upright_size,
)
from ssdml.datasets.reading.formats.delimited import UTF_16, in_utf8
from ssdml.datasets.reading.summary import Summary, counted
from ssdml.datasets.reading.table import SPLIT_WORD, SPLITS, Table
from ssdml.utils.files import (
    WAYS_OUT,
    MemoryLimitError,
    check_inside,
    check_memory,
    check_names,
    check_regular,
    check_signature,
    open_regular,
    read_regular,
    refuse_damage,
)
from ssdml.utils.labels import is_unlabeled

MOST_PIXELS = 2**16  # of an image that is read at once; larger ones stay in their files
MAX_NAMED = 5  # files in a message
LABELED = ("labeled", "labelled")
UNLABELED = ("", "unlabeled", "unlabelled", "unsup")  # the last in aclImdb
SAMPLE = 2**12  # bytes of a text that tell whether it has more letters than numbers
ANNOTATIONS = (".xml", ".txt")  # of an image each, as of Pascal VOC and YOLO
LISTINGS = (".csv", ".tsv", ".jsonl", ".xlsx", ".parquet")  # may hold labels
BESIDE = (*ANNOTATIONS, *LISTINGS, ".json", ".md", ".html", ".xmp", ".aae", ".db", ".ini")  # images
AS_FILES = "Save images as .png or .jpg, and texts as .txt"
IN_FOLDERS = dict.fromkeys((".html", ".xml", ".md", ".gz"), AS_FILES)
IN_FOLDERS |= dict.fromkeys((".npz", ".mat"), "Name the file itself") | {".zip": "Unzip it"}

# Folders of images that name no class, if they alone are in the folder above.
PLAIN = ("images", "image", "imgs", "img", "jpg", "jpeg", "jpegs", "png", "jpegimages", "photos")
MASK = re.compile(
    r"(masks?|trimaps?|seg|segmentation(s|class|object)?|annotations?|labels?|gt|ground[-_ ]?truth)"
    r"([-_ ]?\d+)?\Z",
    re.IGNORECASE,
)
# How a thumbnail or another copy is called besides the image: but not (2), which others have, too.
COPY = re.compile(
    r"[-_. ]+(thumb(nail)?|preview|small|resized|copy|copie|kopie|copia|\d+x\d+)([-_ ]?\d+)?\Z"
    r"|@\dx\Z",
    re.IGNORECASE,
)
PART = re.compile(
    rf"(.*[^a-z])?({SPLIT_WORD})([-_ ]?(set|data|images))?[^a-z]*",
    re.IGNORECASE,
)
# Of a damaged zip file, an encrypted one, and one with a compression that zipfile lacks.
ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    *(NotImplementedError, RuntimeError, struct.error, UnicodeDecodeError),
)


def read_image_folder(folder: Path, *, needs_label: bool = True) -> RawItems:
    """Read ``[{train,test}/]class/image.png``.

    Images in ``unlabeled``, or beside the folders of classes, have no label. Without
    ``needs_label`` there need be no folders.
    """
    names = [
        path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*"))
        if not path.is_dir()
    ]
    images = _images_among(folder, names)
    check_inside(folder, images)
    on_disk = sum(check_regular(folder / name) for name in images)
    return _read_tree(folder, names, images, on_disk, needs_label)


def read_image_zip(path: Path, *, needs_label: bool = True) -> RawItems:
    """Read the same tree from a zip file."""
    with refuse_damage(path, "Download it again.", *ZIP_ERRORS):
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            if any(i.flag_bits & 1 for i in archive.infolist()):
                raise ValueError(f"{path}: is encrypted. Unzip it, and name the folder.")
            entries = {i.filename: i.file_size for i in archive.infolist()}
        entries = {name: size for name, size in entries.items() if not name.endswith("/")}
        images = _images_among(path, sorted(entries))
        check_names(path, images)
        on_disk = check_regular(path)
        check_memory(path, max((entries[name] for name in images), default=0), on_disk)
        return _read_tree(path, sorted(entries), images, on_disk, needs_label)


def texts_of_classes(folder: Path, tables: Sequence[Path]) -> list[Path]:
    """Return the texts in folders of classes, several in each, if no table is another file."""
    if any(path.suffix.lower() not in (".txt", "") for path in tables):
        return []
    texts = [
        path
        for path in tables
        if path.parent != folder and not _are_parts([path.parent.name]) and "=" not in str(path)
    ]
    above = {parent for path in texts for parent in path.parent.parents}
    texts = [path for path in texts if path.parent not in above]
    if len(texts) < 2 * len({path.parent for path in texts}) or not texts:
        return []
    samples = [read_regular(path)[:SAMPLE] for path in texts[:MAX_NAMED]]
    sample = b"".join(s.replace(b"\0", b"") if s.startswith(UTF_16) else s for s in samples)
    n_letters = len(re.findall(rb"[^\W\d_]|[\x80-\xff]", sample))
    are_letters = 2 * n_letters > len(b"".join(sample.split())) and b"\0" not in sample
    return texts if are_letters else []


def read_text_folder(
    folder: Path, texts: Sequence[Path], encoding: str | None, needs_label: bool
) -> Table:
    """Read one text per file of the same tree as a table."""
    import pyarrow as pa

    names = [path.relative_to(folder).as_posix() for path in texts]
    check_inside(folder, names)
    n_bytes = sum(map(check_regular, texts))
    check_memory(folder, 2 * n_bytes, n_bytes)
    contents = [in_utf8(path, read_regular(path), encoding).decode().strip() for path in texts]
    _, paths = _below_common_folder(list(map(PurePosixPath, names)))
    labels, parts = _labels_of(folder, _without_labeled(paths), needs_label, "text")
    columns = {"file": names, "text": contents, "label": labels}
    columns |= {"split": parts} if parts else {}
    return Table(folder, pa.table(columns), lambda row: names[row], ("one text per file",))


def images_of(
    root: Path, names: Sequence[str], on_disk: int
) -> tuple[Pixels | ImageFiles, str, list[str]]:
    """Return images of one size up to 256 x 256 pixels as an array, others in their files.

    Parameters
    ----------
    root : Path
        A folder or a zip file.
    names : sequence of str
        Files in it.
    on_disk : int
        Bytes of all files.

    Returns
    -------
    images : ndarray of shape (n, height, width[, 3]) or ImageFiles
        uint8; or float32 from 0 to 1 if an image has more than 8 bits.
    fact : str
        Number and size of the images, for the summary.
    doubts : list of str
        Doubts about images with several frames or pages: the first one is read.
    """
    files = ImageFiles(root, names)
    sizes: set[tuple[int, int]] = set()
    stacked: list[Pixels] = []
    in_own_units: list[int] = []
    damaged: dict[str, str] = {}  # names and reasons
    of_several: list[str] = []
    at_once = True
    for name in names:
        try:
            with files.opened(name) as image:
                sizes.add(upright_size(image))
                # The others of an MPO, as cameras write, are views of the first.
                if image.format != "MPO" and getattr(image, "is_animated", False):
                    of_several.append(name)
                at_once &= len(sizes) == 1 and image.width * image.height <= MOST_PIXELS
                found, own_units = pixels(image) if at_once and not damaged else (None, False)
        except MemoryLimitError:
            raise
        except ValueError as error:
            damaged[name] = str(error)
            continue
        if found is not None:
            if not stacked:
                check_memory(root, 4 * len(names) * found.size, on_disk)  # float32, later
            in_own_units += [len(stacked)] * own_units
            stacked.append(found)
    _refuse_damaged(root, damaged, len(names))
    doubts = []
    if of_several:
        doubts.append(
            f"only the first frame or page is read of {counted(len(of_several), 'image')} with "
            f"several, such as {of_several[0]}; if each is a sample, save them as files of their "
            "own"
        )
    if not at_once:
        one = "{} x {} pixels".format(*next(iter(sizes)))
        size = one if len(sizes) == 1 else "several sizes"
        fact = f"{counted(len(names), 'image')} of {size}, read from their files when needed"
        return files, fact, doubts
    images, unit = stack_images(root, names, stacked, in_own_units)
    width, height = next(iter(sizes))
    return images, f"{counted(len(names), 'image')} of {width} x {height} pixels{unit}", doubts


def _refuse_damaged(root: Path, damaged: Mapping[str, str], n_images: int) -> None:
    if not damaged:
        return
    names = list(damaged)
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    reason = damaged[names[0]]
    if root.is_dir():
        try:
            check_signature(root / names[0])
        except ValueError as error:  # a web page, a pointer of Git LFS and the like
            reason = str(error)
    raise ValueError(
        f"{root}: {len(names)} of {n_images} files are not images that Pillow can read: "
        f"{', '.join(names[:MAX_NAMED])}{more}. Replace or remove them. The first: {reason}"
    )


def _images_among(root: Path, names: Sequence[str]) -> list[str]:
    images = [name for name in names if is_image_name(name)]
    heif = [name for name in images if PurePosixPath(name).suffix.lower() in HEIF]
    if heif and "HEIF" not in image_formats():
        raise ImportError(
            f"{root}: {counted(len(heif), 'image')} such as {heif[0]} cannot be read without "
            "pillow-heif: pip install 'ssdml[heif]'. Or export them as JPEG."
        )
    return images


def _read_tree(
    root: Path, names: Sequence[str], images: Sequence[str], on_disk: int, needs_label: bool
) -> RawItems:
    others = [name for name in names if not is_image_name(name) and not is_hidden(name)]
    if others and not images and not _listing_among(names):
        _refuse_others(root, others)
    # Some programs write zip files with the backslashes of Windows.
    whole = [PurePosixPath(n.replace("\\", "/") if root.is_file() else n) for n in images]
    above, paths = _below_common_folder(_without_plain(whole))
    paths = _without_labeled(paths)
    if needs_label:
        _refuse_annotations(root, names, whole)
    listing = _listing_among(names)
    unused = (
        listing and f"name the images in {listing!r}, which names none of them, or pass its path"
    )
    if listing and root.is_file():
        unused = f"unzip it, as {listing!r} is not read in a zip file"
    labels, parts = _labels_of(root, paths, needs_label, unused=unused)
    check_memory(root, 4 * len(images) * max(map(len, images)), on_disk)  # of the names
    items, fact, doubts = images_of(root, images, on_disk)
    summary = Summary(f"{root}", {"images": fact}, doubts=doubts)
    if above:
        summary.facts["class folders"] = f"in {above}"
    test = None
    if parts is not None:
        held_out = "test" if "test" in parts else "validation"
        test = np.array(parts) == held_out
        summary.facts["test rows"] = f"{test.sum():,}, in the folder of the {held_out} images"
        summary.doubts += _doubts_of_split(labels, parts)
    else:
        summary.doubts += _doubts_of_parts(labels)
    summary.left_out |= dict.fromkeys(others, "no image")
    of_class = zip(paths, labels, strict=True)
    inner = [str(path.parent) for path, label in of_class if label not in ("", path.parent.name)]
    summary.doubts += _doubts(others, whole, inner, labels)
    beside = sum(len(path.parts) == 1 for path in paths)
    if beside and needs_label:
        has = "which has" if beside == 1 else "which have"
        summary.facts["without a folder"] = f"{counted(beside, 'image')}, {has} no label"
    return RawItems(items, np.array(labels), test, ids=np.array(images), summary=summary)


def _refuse_others(root: Path, others: Sequence[str]) -> NoReturn:
    """Raise ValueError that names files, none of which is read."""
    [(suffix, _)] = Counter(PurePosixPath(n).suffix.lower() for n in others).most_common(1)
    first = next(n for n in others if n.lower().endswith(suffix))
    raise ValueError(
        f"{root}: must contain images, texts or tables; got {counted(len(others), 'file')} such as "
        f"{first!r}. {({**WAYS_OUT, **IN_FOLDERS}).get(suffix, AS_FILES)}."
    )


def _refuse_annotations(root: Path, names: Sequence[str], images: Sequence[PurePosixPath]) -> None:
    """Raise ValueError if images are in no folders of classes, but files beside them hold labels.

    These are annotations, masks, or tables that name none of the images; of those beside images in
    no folder at all, another error tells.
    """
    masks = _masks_among(images)
    folders = {p.parent.name for p in images if not PART.fullmatch(p.parent.name)}
    others_of_masks = {p.parent.name.casefold() for p in {*images} - {*masks}}
    are_masked = bool(masks) and all(n in PLAIN or PART.fullmatch(n) for n in others_of_masks)
    if len(folders) > 1 and not are_masked:
        return
    stems = {path.stem for path in images}
    others = [PurePosixPath(name) for name in names if not is_hidden(name)]
    found = [n for n in others if n.suffix.lower() in ANNOTATIONS and n.stem in stems]
    if any(folders):
        found += [n for n in others if n.suffix.lower() in (".xml", ".json", ".mat")]
    way_out = "Write labels.csv beside the images, with the columns filename and label"
    if are_masked:
        problem = f"masks of other images, such as {str(masks[0])!r}"
        way_out += "; if folders above name the classes, move the masks out of them"
    elif found:
        problem = f"annotations such as {str(found[0])!r}, which are not read"
        way_out += ", or export folders of classes (in CVAT: ImageNet)"
    elif any(folders) and (listing := _listing_among(names)):
        problem = f"all images in the folder {folders.pop()!r}, and {listing!r}, which "
        if root.is_dir():
            problem += "names none of them, or not their labels"
        else:
            problem += "is not read in a zip file"
            way_out = "Unzip it, and name the folder"
    else:
        return
    raise ValueError(
        f"{root}: must have the labels in the names of folders or in a table; got {problem}. "
        f"{way_out}."
    )


def _labels_of(
    root: Path,
    paths: Sequence[PurePosixPath],
    needs_label: bool,
    what: str = "image",
    unused: str | None = None,
) -> tuple[list[str], list[str] | None]:
    """Return the folder of each image below its part, "" for none; and the part, if there are.

    ``unused`` is another way out, by a table.
    """
    paths = _unlabeled_in_training(paths)
    tops = {path.parts[0] for path in paths if len(path.parts) > 1}
    loose = any(len(path.parts) == 1 for path in paths)
    by_part = bool(tops) and not loose and _are_parts(tops)
    inner = _below_parts(paths) if by_part else list(paths)
    depths = {len(path.parts) for path in inner}
    if depths == {3} and not by_part:
        raise ValueError(
            f"{root}: the folders above the classes must be train, validation and test; got "
            f"{sorted(tops)}. If these are classes, put their {what}s directly into them; else "
            "move the folders of classes, or name one of these."
        )
    mixed = max(depths, default=0) > 2 and not by_part and any(_are_parts([t]) for t in tops)
    if not paths or mixed or not (2 in depths or (depths == {1} and not needs_label)):
        found = f"{len(paths)} {what}s, the first {str(paths[0])!r}" if paths else f"no {what}s"
        raise ValueError(
            f"{root}: must contain class/{what} files, or train/class/{what} and "
            f"test/class/{what}; got {found}. Put the {what}s of a class into a "
            "folder of its name, and those without a label beside these folders or into one called "
            "unlabeled. If none has a label, load_dataset takes needs_label=False."
            + (f" Or {unused}." if unused else "")
        )
    folders = [path.parts[0] if len(path.parts) > 1 else "" for path in inner]
    labels = ["" if f.casefold() in UNLABELED else f for f in folders]  # other marks are told
    parts = [_part_of(path.parts[0]) for path in paths] if by_part else []
    return labels, parts if len(set(parts)) > 1 else None


def _doubts(
    names: Sequence[str],
    whole: Sequence[PurePosixPath],
    inner: Sequence[str],
    labels: Sequence[str],
) -> Iterator[str]:
    """Doubt what seems wrong with folders, and tables that were not used."""
    without = {str(PurePosixPath(name).parent) for name in names}
    without -= {str(parent) for path in whole for parent in path.parents} | {"."}
    for folder in sorted(without):
        yield f"folder {folder!r} holds no image that Pillow can read, but other files"
    if listing := _listing_among(names):
        yield (
            f"{listing!r} was not used, as none of its columns names the images, or none their "
            "labels; the labels are the names of folders"
        )
    odd = [n for n in names if PurePosixPath(n).suffix.lower() not in BESIDE]
    places = {path.parent for path in whole}
    if odd := [n for n in odd if PurePosixPath(n).parent in places]:
        yield (
            f"{counted(len(odd), 'file')} beside images not read, such as {odd[0]!r}; if they are "
            "samples, save them as .png"
        )
    if len(set(labels)) == 1 and not is_unlabeled(np.array(labels))[0]:
        yield (
            f"all images are in the folder {labels[0]!r}, their only class; put those without a "
            "label beside it, or into a folder called unlabeled"
        )
    if masks := _masks_among(whole):
        yield (
            f"{counted(len(masks), 'image')} such as {masks[0]} may be masks of others, but are "
            "read as samples; if they are masks, move them out of the folder"
        )
    if copies := _named_after(whole, _copied):
        yield (
            f"{counted(len(copies), 'image')} such as {copies[0]} may be copies of others, but are "
            "read as samples; if they are copies, move them out of the folder"
        )
    if inner:
        yield f"images in folders within those of classes are of that class, as in {inner[0]!r}"


def _doubts_of_split(labels: Sequence[str], parts: Sequence[str]) -> Iterator[str]:
    """Doubt a folder that holds all held-out images, if it is no class of the training images."""
    classes: dict[bool, set[str]] = {True: set(), False: set()}
    for label, part in zip(labels, parts, strict=True):
        classes[part == "train"].add(label)
    for label in classes[False] - classes[True]:
        if len(classes[False]) == 1 and len(classes[True]) > 1 and label:
            yield (
                f"all held-out images are in the folder {label!r}, which is no class of the "
                "training images; if they have no label, move them into the folder above"
            )


def _doubts_of_parts(labels: Sequence[str]) -> Iterator[str]:
    """Doubt a class called test or the like; train is one of vehicles."""
    classes = {*labels} - {""}
    named = sorted(c for c in classes if _are_parts([c]))
    if not named and len(classes) < 4:
        named = sorted(c for c in classes if _part_of(c) and " " not in c)
    if named and (named != ["train"] or len(classes) < 3):
        yield (
            f"{named[0]!r} counts as a class; if it holds the {_part_of(named[0])} "
            "images, put all folders of classes into train, and its images into test/class"
        )


def _masks_among(paths: Sequence[PurePosixPath]) -> list[PurePosixPath]:
    """Return the images that have the name of another one, and are called masks or the like.

    The folder is, or one above it; or the name of the image or of its folder has such an end.
    """
    in_folders = [path for path in paths if any(map(MASK.fullmatch, path.parent.parts))]
    beside = {path.stem for path in {*paths}.difference(in_folders)}
    if masks := [path for path in in_folders if path.stem in beside]:
        return masks
    return _named_after(paths, _masked)


def _named_after(
    paths: Sequence[PurePosixPath], originals: Callable[[PurePosixPath], Iterator[PurePosixPath]]
) -> list[PurePosixPath]:
    """Return the images of which one of the ``originals``, without suffixes, is another image."""
    stems = {path.with_suffix(""): path for path in paths}
    return [path for stem, path in stems.items() if not stems.keys().isdisjoint(originals(stem))]


def _copied(stem: PurePosixPath) -> Iterator[PurePosixPath]:
    """Return what a copy may be of: cat/1 of cat/1_thumb."""
    name = COPY.sub("", stem.name)
    if name not in ("", stem.name):
        yield stem.with_name(name)


def _masked(stem: PurePosixPath) -> Iterator[PurePosixPath]:
    """Return what a mask may be of: 1 of 1_mask, and cat/1 of cat_mask/1 and cat_mask/1_mask."""
    name, folder = (_without_mask(n) for n in (stem.name, stem.parent.name))
    if name:
        yield stem.with_name(name)
    if folder:
        above = stem.parent.with_name(folder)
        yield above / stem.name
        yield above / (name or stem.name)


def _without_mask(name: str) -> str:
    """Return a name without its end that tells a mask; "" if there is none, or no rest."""
    mark = MASK.search(name)
    return name[: mark.start()].rstrip("-_. ") if mark else ""


def _listing_among(names: Sequence[str]) -> str | None:
    return next((n for n in names if PurePosixPath(n).suffix.lower() in LISTINGS), None)


def _unlabeled_in_training(paths: Sequence[PurePosixPath]) -> list[PurePosixPath]:
    """Put a folder called unlabeled, beside those of the parts, into that of training."""
    tops = sorted({path.parts[0] for path in paths if len(path.parts) > 1})
    is_mark = is_unlabeled(np.array(tops, dtype=str))
    marks = {top for top, mark in zip(tops, is_mark, strict=True) if mark}
    if not marks or marks == set(tops) or not _are_parts(set(tops) - marks):
        return list(paths)
    return [PurePosixPath("train", p.parts[0], p.name) if p.parts[0] in marks else p for p in paths]


def _below_common_folder(paths: list[PurePosixPath]) -> tuple[str, list[PurePosixPath]]:
    """Return the folder that holds all class folders, and the paths below it.

    A folder alone is a class if images are in it, and train, validation and test are parts.
    """
    above = PurePosixPath()
    while paths:
        tops = {path.parts[0] for path in paths}
        depths = {len(path.parts) for path in paths}
        if len(tops) > 1 or max(depths) < 3 or 1 in depths or _are_parts(tops):
            break
        above /= tops.pop()
        paths = [path.relative_to(path.parts[0]) for path in paths]
    return "" if above == PurePosixPath() else str(above), paths


def _without_labeled(paths: list[PurePosixPath]) -> list[PurePosixPath]:
    """Remove a folder called labeled from above those of classes, beside one called unlabeled."""
    tops = {path.parts[0] for path in paths if len(path.parts) > 2}
    labeled = {top for top in tops if top.casefold() in LABELED}
    others = sorted({path.parts[0] for path in paths} - labeled)
    if not labeled or not is_unlabeled(np.array(others, dtype=str)).all():
        return paths
    return [PurePosixPath(*p.parts[1:]) if p.parts[0] in labeled else p for p in paths]


def _without_plain(paths: Sequence[PurePosixPath]) -> list[PurePosixPath]:
    """Remove a folder such as images from above images, if no other folder is beside it."""
    folders: dict[PurePosixPath, set[str]] = {}
    for path in paths:
        for folder in list(path.parents)[:-1]:
            folders.setdefault(folder.parent, set()).add(folder.name)
    plain = {
        above / name
        for above, (name, *others) in folders.items()
        if name.casefold() in PLAIN and not others and above / name not in folders
    }
    if {path.parent for path in paths} == plain and len(plain) == 1:
        return [PurePosixPath(path.name) for path in paths]
    return [p.parent.parent / p.name if p.parent in plain else p for p in paths]


def _below_parts(paths: Sequence[PurePosixPath]) -> list[PurePosixPath]:
    """Return the paths below the folders of parts, and below others that hold all of a part."""
    of_part: dict[str, list[PurePosixPath]] = {}
    for path in paths:
        of_part.setdefault(path.parts[0], []).append(PurePosixPath(*path.parts[1:]))
    below = {part: _below_common_folder(inner) for part, inner in of_part.items()}
    if all(above for above, _ in below.values()):
        of_part = {part: inner for part, (_, inner) in below.items()}
    found = {part: iter(_without_labeled(inner)) for part, inner in of_part.items()}
    return [next(found[path.parts[0]]) for path in paths]


def _part_of(folder: str) -> str:
    """Return the split that a folder holds by its name, such as test_set, or ""."""
    match = PART.fullmatch(folder)
    return SPLITS.get(match[2].lower() if match else folder.casefold(), "")


def _are_parts(folders: Iterable[str]) -> bool:
    """Whether folders are called train, validation or test, or several are named after these."""
    parts = {_part_of(folder) for folder in folders}
    return "" not in parts and (len(parts) > 1 or all(f.casefold() in SPLITS for f in folders))

"""Checks of files before they are read: their kind, their place, and the memory they will take."""

from __future__ import annotations

import json
import math
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, Self

import numpy as np

from ssdml.utils.typing import Array

VARIABLE = "SSDML_MAX_GB"
MOST_GB = 1.0  # that a file may take in memory
MOST_RATIO = 50  # or this many times its size on disk, if that is more
MOST_TEXT = 200  # of a library's message
VALUE_BYTES = 8  # of a number, as computations need it, and at least of any other value

AS_TABLE = "Load it with {}, and save frame.to_parquet(path)"
WAYS_OUT = {  # of formats that are not read, by suffix
    **dict.fromkeys(
        (".pkl", ".pickle", ".pt", ".pth", ".joblib"),
        "Pickles can run code: if you trust it, load it, and save its arrays with numpy.savez or "
        "its table with frame.to_parquet(path)",
    ),
    **dict.fromkeys((".orc", ".avro", ".lance", ".fst"), "Write it as .parquet"),
    **dict.fromkeys((".xls", ".ods", ".xlsb", ".numbers", ".fods"), "Save it as .xlsx or .csv"),
    **dict.fromkeys(
        (".svm", ".libsvm", ".svmlight"),
        "Load it with sklearn.datasets.load_svmlight_file, and save X.toarray() and y with "
        "numpy.savez",
    ),
    **dict.fromkeys(
        (".h5", ".hdf5", ".hdf", ".zarr", ".nc", ".safetensors", ".tfrecord", ".bin"),
        "Save its arrays with numpy.savez",
    ),
    ".h5ad": "Load it with anndata.read_h5ad, and save its arrays with numpy.savez",
    ".loom": "Load it with anndata.read_loom, and save its arrays with numpy.savez",
    ".fits": "Load it with astropy.table.Table.read, and write it as .ecsv or .parquet",
    ".dta": AS_TABLE.format("pandas.read_stata"),
    **dict.fromkeys((".sav", ".zsav", ".por"), AS_TABLE.format("pandas.read_spss")),
    **dict.fromkeys((".sas7bdat", ".xpt"), AS_TABLE.format("pandas.read_sas")),
    **dict.fromkeys((".rds", ".rdata", ".rda"), "Write it in R: write.csv(frame, 'table.csv')"),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3", ".duckdb"), "Export the table as .csv"),
    ".mtx": "Load it with scipy.io.mmread, and save X.toarray() and y with numpy.savez",
    ".ts": "If it holds series of the UCR archive, let its name end in _TRAIN.ts",
    ".sql": "Run it in a database, and export the table as .csv",
    **dict.fromkeys(
        (".wav", ".mp3", ".flac", ".ogg", ".m4a", ".mp4", ".avi", ".mov"),
        "Compute a vector of each file with a network, and save the vectors with numpy.savez",
    ),
    **dict.fromkeys(
        (".yml", ".yaml"),
        "Write its texts and labels as .csv; of Rasa, convert it: rasa data convert nlu -f json",
    ),
    ".html": AS_TABLE.format("pandas.read_html"),
    ".xml": "Export its labels as .csv or, of images, as folders of classes (in CVAT: ImageNet)",
    **dict.fromkeys((".gz", ".tar", ".tgz", ".7z", ".rar"), "Unpack it, and name a file in it"),
    **dict.fromkeys((".vec", ".md"), "Rename it to .txt"),
    ".geojson": "Rename it to .json",
    ".vw": "Write its labels and features as columns of a .csv",
    ".gct": "Its samples are columns: write the table as .csv, with a row per sample (frame.T) and "
    "a column of labels",
    ".ann": "Write the texts and their labels, as of brat, as .csv",
}

ZIPPED = (".xlsx", ".xlsm", ".npz", ".zip")
SIGNATURES: tuple[tuple[bytes, str, tuple[str, ...], str], ...] = (
    # How files begin; what they are; suffixes; the way out if the name has another.
    (b"PK\x03\x04", "a zip file, as Excel and NumPy write", ZIPPED, ""),
    (b"\x1f\x8b", "compressed by gzip", (".gz",), ""),
    (b"\xfd7zXZ\x00", "compressed by xz", (".xz",), ""),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", (".zst",), ""),
    (b"BZh91AY&SY", "compressed by bzip2", (".bz2",), ""),
    (b"PAR1\x15", "a Parquet file", (".parquet", ".pq"), ""),
    (b"ARROW1\x00\x00", "an Arrow file", (".arrow", ".feather", ".ipc"), ""),
    (
        b"FEA1\x00\x00\x00\x00",
        "a file of Feather 1",
        (),
        "Write version 2, as pyarrow.feather does",
    ),
    (b"\x93NUMPY", "an array of NumPy", (".npy",), ""),
    (b"\xd0\xcf\x11\xe0", "an Excel file of before 2007", (), WAYS_OUT[".xls"]),
    (b"\x89HDF\r\n", "an HDF5 file", (), WAYS_OUT[".h5"]),
    (b"SQLite format 3\x00", "a database of SQLite", (), WAYS_OUT[".sqlite"]),
    (b"\x80\x04\x95", "a pickle of Python", (), WAYS_OUT[".pkl"]),
    (b"\x80\x05\x95", "a pickle of Python", (), WAYS_OUT[".pkl"]),
    (b"<stata_dta>", "a file of Stata", (), WAYS_OUT[".dta"]),
    (b"$FL2@(#)", "a file of SPSS", (), WAYS_OUT[".sav"]),
    (b"MATLAB 5.0 MAT-file", "a file of MATLAB", (".mat",), ""),
    (b"RDX3\n", "a file of R", (), WAYS_OUT[".rda"]),
    (b"CDF\x01", "a netCDF file", (), WAYS_OUT[".nc"]),
    (b"CDF\x02", "a netCDF file", (), WAYS_OUT[".nc"]),
    (b"Obj\x01", "an Avro file", (), WAYS_OUT[".avro"]),
    (b"%%MatrixMarket", "a sparse matrix of Matrix Market", (), WAYS_OUT[".mtx"]),
    (b"%PDF-", "a PDF file", (), "Save the table as .csv"),
    (b"version https://git-lfs.", "a pointer of Git LFS", (), "Fetch the data: git lfs pull"),
    (b"<!doctype html", "a web page", (), "Download the file itself, not the page about it"),
    (b"<table", "a table of a web page", (), WAYS_OUT[".html"]),
    (b"<?xml", "a file of XML", (), WAYS_OUT[".xml"]),
    (b"HEADER RECORD*******", "a file of SAS", (), WAYS_OUT[".xpt"]),
    (b"{\\rtf", "a file of rich text", (), "Save it as plain text"),
    (b"<html", "a web page", (), "Download the file itself, not the page about it"),
)
TEXT = bytes([9, 10, 13, *range(32, 127)])  # as tables in ASCII have them
NEVER_TEXT = (*ZIPPED, ".npy", ".mat", ".parquet", ".pq", ".feather")

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class MemoryLimitError(ValueError):
    """A file would take too much memory."""


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path, with ``~`` for the home folder as in a shell; names of no user stay.

    Examples
    --------
    >>> as_path("~/model") == Path.home() / "model", as_path("~$lock.xlsx").name
    (True, '~$lock.xlsx')
    """
    return Path(os.path.expanduser(path))  # that of Path raises for "~$lock.xlsx"


@contextmanager
def refuse_damage(path: Path, way_out: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors of a library that reads a file into a ValueError that names it.

    These errors tell of damage; without them, any error does but MemoryLimitError.

    Examples
    --------
    >>> with refuse_damage(Path("a.zip"), "Download it again.", zipfile.BadZipFile):
    ...     raise zipfile.BadZipFile("File is not a zip file")
    Traceback (most recent call last):
    ValueError: a.zip: truncated or damaged (File is not a zip file). Download it again.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryLimitError) or not isinstance(error, errors or Exception):
            raise
        what = "truncated or damaged" if errors else "cannot be read"
        raise ValueError(f"{path}: {what} ({error}). {way_out}") from error


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; refuse pipes, devices and folders, which could block.

    Raises FileNotFoundError if there is no file, and ValueError if it is not a regular one.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a").write_bytes(b"content")
    ...     with open_regular(Path(folder) / "a") as file:
    ...         file.read()
    b'content'
    """
    check_regular(path)
    # The path may have been replaced since: a pipe must not block here either.
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # either is missing somewhere
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        _check_kind(path, os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_signature(path: Path) -> None:
    r"""Raise ValueError if a file begins like one of another kind than its name says.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_bytes(b"\x1f\x8b...")
    ...     try:
    ...         check_signature(path)
    ...     except ValueError as error:
    ...         print(str(error).removeprefix(folder))
    /t.csv: must be what its name says; it is compressed by gzip. Let its name end in .gz.
    """
    with open_regular(path) as file:
        start = file.read(512)
    suffix = path.suffix.lower()
    for signature, what, suffixes, way_out in SIGNATURES:
        if start.lstrip().lower().startswith(signature.lower()) and suffix not in suffixes:
            way_out = way_out or f"Let its name end in {' or '.join(suffixes)}"
            raise ValueError(f"{path}: must be what its name says; it is {what}. {way_out}.")
    if suffix in NEVER_TEXT and b"\n" in start and not start.translate(None, TEXT):
        raise ValueError(
            f"{path}: must be what its name says; it is text. Let its name end in .csv or, for "
            "lines of JSON, .jsonl."
        )


def read_regular(path: Path) -> bytes:
    """Read a regular file."""
    with open_regular(path) as file:
        return file.read()


def read_text(path: Path, way_out: str = "Save it again.") -> str:
    """Read a regular file of text in UTF-8; raise ValueError if it is not."""
    try:
        return read_regular(path).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be text in UTF-8 ({error}). {way_out}") from error


def check_regular(path: Path) -> int:
    """Return the size of a regular file in bytes; raise ValueError for another kind.

    For libraries that open the path themselves.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise FileNotFoundError(
                f"{path} is a link to {os.readlink(path)}, which is missing. Get the file, or "
                "remove the link."
            ) from None
        raise FileNotFoundError(f"{path} is missing.") from None
    _check_kind(path, found.st_mode)
    return found.st_size


def _check_kind(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "another kind of file")
        raise ValueError(
            f"{path} must be a regular file; got {kind}. Copy its content into a file."
        )


def check_names(where: Path, names: Iterable[str]) -> None:
    """Raise ValueError if a name, joined to a folder, would leave it, or can be no file's name.

    Examples
    --------
    >>> check_names(Path("images.zip"), ["a.png", "../b.png"])
    Traceback (most recent call last):
    ValueError: images.zip: names must stay inside; got '../b.png'. Remove or rename it.
    """
    for name in names:
        posix, windows = PurePosixPath(name), PureWindowsPath(name)
        is_absolute = posix.is_absolute() or bool(windows.drive or windows.root)
        if is_absolute or "\0" in name or ".." in (*posix.parts, *windows.parts):
            raise ValueError(f"{where}: names must stay inside; got {name!r}. Remove or rename it.")
        try:
            os.fsencode(name)
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON may hold
            raise ValueError(
                f"{where}: names must be Unicode text; got {name!r}. Remove or rename it."
            ) from None


def check_inside(folder: Path, names: Sequence[str]) -> None:
    """Raise ValueError unless each name, and what it links to, is below the folder.

    ``folder`` itself may be a link. Takes one system call per name.
    """
    check_names(folder, names)
    root = os.path.realpath(folder)
    inside: dict[str, bool] = {}  # folders that were resolved
    for name in names:
        path = os.path.join(folder, name)
        parent = os.path.dirname(path)
        if parent not in inside:
            inside[parent] = _is_below(os.path.realpath(parent), root)
        linked_out = os.path.islink(path) and not _is_below(os.path.realpath(path), root)
        if linked_out or not inside[parent]:
            raise ValueError(
                f"{folder}: links must stay inside the folder; {name!r} leads to "
                f"{os.path.realpath(path)}. Copy the files into the folder."
            )


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def check_memory(path: Path | str, n_bytes: int, on_disk: int, *, so_far: bool = False) -> None:
    """Raise MemoryLimitError if reading a file would take too much memory.

    Parameters
    ----------
    path : Path or str
        For the message.
    n_bytes : int
        What the file says it will take.
    on_disk : int
        Its size. The limit is 1 GB (of 10^9 bytes), or 50 times this size if that is more; the
        environment variable ``SSDML_MAX_GB`` sets another number of GB.
    so_far : bool
        Whether the file may take more.

    Examples
    --------
    >>> check_memory(Path("images.gz"), 47 * 10**6, 10 * 10**6)
    """
    limit = max(_most_bytes(), MOST_RATIO * on_disk)
    if n_bytes > limit:
        raise MemoryLimitError(
            f"{path}: takes {n_bytes / 1e9:.1f} GB in memory, from {on_disk / 1e6:.2g} MB on disk; "
            f"at most {limit / 1e9:.1f} GB are read. If you trust the file, set the environment "
            f"variable {VARIABLE}={n_bytes // 10**9 + 1}{' or more' * so_far}."
        )


def _most_bytes() -> int:
    given = os.environ.get(VARIABLE, "")
    try:
        number = float(given) if given else MOST_GB
        return int(number * 1e9)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{VARIABLE} must be a number of gigabytes; got {given!r}. Set it to 4, for instance."
        ) from None


def check_npy(path: Path, advice: str = "") -> tuple[int, ...]:
    """Return the shape in a .npy file; raise ValueError unless it holds as many bytes.

    NumPy would allocate the array first. No array of objects passes. The error ends with
    ``advice``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "x.npy", np.zeros(3))
    ...     check_npy(Path(folder) / "x.npy")
    (3,)
    """
    size = check_regular(path)
    try:
        with open_regular(path) as file:
            return _check_header(file, size)
    except Exception as error:  # damaged headers raise many kinds
        raise ValueError(f"{path}: cannot be read ({_brief(error)}). {advice}".strip()) from error


def _brief(error: Exception) -> str:
    """Return a message, of which those of NumPy repeat the whole header."""
    text = str(error)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."


def _check_header(file: IO[bytes], size: int) -> tuple[int, ...]:
    """Return the shape of an array in a file of this size; raise ValueError if it is wrong."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read:
        raise ValueError(f"it has the version {version}")
    try:
        shape, _, dtype = read[version](file)
    except ValueError as error:
        if "max_header_size" in str(error):  # which NumPy advises to raise
            raise ValueError("its header is longer than 10,000 bytes") from error
        raise
    if dtype.hasobject:
        raise ValueError("it holds objects, which are not unpickled")
    wanted, found = math.prod(shape) * dtype.itemsize, size - file.tell()
    if wanted != found:
        raise ValueError(f"its header announces {wanted} bytes, shape {shape}; got {found}")
    return shape


class Archive:
    """Arrays of a .npz file by name, each read when it is asked for; a context manager.

    A header must announce the bytes that follow, and no array of objects is read. An array that is
    read twice counts twice against the limit on memory.

    Parameters
    ----------
    path : Path
    advice : str
        End of the errors.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If it, or an array, is damaged or would take too much memory.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "x.npz", a=np.arange(3), b=np.zeros((9, 2)))
    ...     with Archive(Path(folder) / "x.npz") as archive:
    ...         archive["a"], archive.shape("b")
    (array([0, 1, 2]), (9, 2))
    """

    def __init__(self, path: Path, advice: str = "") -> None:
        self._path, self._advice, self._n_bytes = path, advice, 0
        self._on_disk = check_regular(path)
        with ExitStack() as stack:
            file = stack.enter_context(open_regular(path))
            try:
                self._archive = stack.enter_context(zipfile.ZipFile(file))
            except Exception as error:  # damaged ones raise many kinds
                raise self._damage(error) from error
            self._closing = stack.pop_all()
        self._members = {
            info.filename.removesuffix(".npy"): info
            for info in self._archive.infolist()
            if info.filename.endswith(".npy")
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    @property
    def names(self) -> list[str]:
        """Names of the arrays, in the order of the file."""
        return list(self._members)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of an array; None if it cannot be read, as one of objects."""
        try:
            with self._archive.open(self._members[name]) as member:
                return _check_header(member, self._members[name].file_size)
        except Exception:  # the reader of the array will tell
            return None

    def __getitem__(self, name: str) -> Array:
        info = self._members[name]
        self._n_bytes += max(info.file_size, VALUE_BYTES * math.prod(self.shape(name) or (0,)))
        check_memory(self._path, self._n_bytes, self._on_disk)
        try:
            with self._archive.open(info) as member:
                _check_header(member, info.file_size)
            with self._archive.open(info) as member:
                array: Array = np.lib.format.read_array(member, allow_pickle=False)
        except Exception as error:
            raise self._damage(error, name) from error
        return array

    def _damage(self, error: Exception, name: str = "") -> ValueError:
        what = f"{name} cannot be read" if name else "cannot be read"
        return ValueError(f"{self._path}: {what} ({_brief(error)}). {self._advice}".strip())


def read_npz(path: Path, names: Iterable[str] | None = None, advice: str = "") -> dict[str, Array]:
    """Read arrays of a .npz file, without objects, after their sizes are checked.

    Parameters
    ----------
    path : Path
    names : iterable of str, optional
        Arrays to read, those of them that are there; None: all.
    advice : str
        End of the errors.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If it is damaged, or would take too much memory.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "x.npz", a=np.arange(3), b=np.zeros(9))
    ...     read_npz(Path(folder) / "x.npz", ["a", "c"])
    {'a': array([0, 1, 2])}
    """
    with Archive(path, advice) as archive:
        wanted = archive.names if names is None else set(names)
        return {name: archive[name] for name in archive.names if name in wanted}


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError if it is damaged or nested too deeply, or a key occurs again.

    Examples
    --------
    >>> parse_json(b"[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON; raise ValueError if it has a key twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        again = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"an object has the key {again!r} twice")
    return found

"""Estimators and models in files: JSON for parameters, and beside them the model's `.gbun` file. No pickle.

Files go through Spark, so that a path may be of any file system that it knows. On a plain one, `gbun.load_model` reads
`model.gbun` without Spark.
"""

from __future__ import annotations

from typing import Any

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

from gbun.spark.worker import words

FILE = "model.gbun"


class Stored(MLReadable, MLWritable):  # type: ignore[type-arg]
    """What can be saved and loaded. Of functions among the parameters, files hold the names."""

    def write(self) -> MLWriter:
        return _Writer(self)

    @classmethod
    def read(cls) -> Any:
        return _Reader(cls)


class _Writer(MLWriter):
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def saveImpl(self, path: str) -> None:
        context = self.sparkSession.sparkContext
        given = {param.name: words(value) for param, value in self.instance._paramMap.items()}
        DefaultParamsWriter.saveMetadata(self.instance, path, context, paramMap=given)
        content = getattr(self.instance, "_content", None)
        if content is not None:
            _write(context, f"{path}/{FILE}", content)


class _Reader(MLReader):  # type: ignore[type-arg]
    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession.sparkContext)
        wanted = f"{self.cls.__module__}.{self.cls.__name__}"
        if metadata["class"] != wanted:
            raise ValueError(f"{path} holds a {metadata['class']}, not a {wanted}")
        instance: Any = self.cls()
        instance._resetUid(metadata["uid"])
        if metadata["paramMap"].get("onProgress") is not None:
            metadata["paramMap"]["onProgress"] = None  # whoever loads it says who is to be told
        nothing = [name for name, value in metadata["paramMap"].items() if value is None]
        instance._set(**{name: metadata["paramMap"].pop(name) for name in nothing})  # Spark's converters refuse None
        DefaultParamsReader.getAndSetParams(instance, metadata)
        if not hasattr(instance, "fit"):
            instance._content = self._content(path)
            try:
                instance.get_booster()
            except ValueError as error:
                raise ValueError(f"{path}/{FILE}: {str(error).split(': ', 1)[-1]}") from None
        return instance

    def _content(self, path: str) -> bytes:
        file, found = f"{path}/{FILE}", None
        where, system = _place(self.sparkSession.sparkContext, file)
        if system.exists(where):
            found = self.sparkSession.read.format("binaryFile").load(file).select("content").first()
        if found is None:
            raise ValueError(f"{path} has no {FILE}: it was not written completely")
        return bytes(found[0])


def _place(context: Any, path: str) -> tuple[Any, Any]:
    """A path in Hadoop's terms, and the file system it is of."""
    where = context._jvm.org.apache.hadoop.fs.Path(path)
    return where, where.getFileSystem(context._jsc.hadoopConfiguration())


def _write(context: Any, path: str, content: bytes) -> None:
    where, system = _place(context, path)
    out = system.create(where, True)
    try:
        for first in range(0, len(content), 2**22):
            out.write(content[first : first + 2**22])
    finally:
        out.close()

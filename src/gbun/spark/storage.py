"""Estimators and models in files: JSON for parameters, and the model's `.gbun` file beside it. No pickle.

Spark reads and writes the files, so that a path may be of any file system that it supports. On a local one,
`gbun.load_model` reads `model.gbun` without Spark.
"""

from __future__ import annotations

from typing import Any

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLWritable, MLWriter

from gbun.config import to_printable
from gbun.model import model_from_bytes

MODEL_FILE = "model.gbun"
CHUNK = 2**22  # bytes that are handed to Java at once


class SavedInFiles(MLReadable, MLWritable):  # type: ignore[type-arg]
    """Estimators and models that can be saved and loaded. Files hold the names of functions among the parameters."""

    def write(self) -> MLWriter:
        return _Writer(self)  # type: ignore[arg-type]

    @classmethod
    def read(cls) -> Any:
        return _Reader(cls)  # type: ignore[arg-type]


class _Writer(DefaultParamsWriter):
    def saveImpl(self, path: str) -> None:
        context = self.sparkSession.sparkContext
        values = {param.name: to_printable(value) for param, value in self.instance._paramMap.items()}
        self.saveMetadata(self.instance, path, context, paramMap=values)
        content = getattr(self.instance, "_content", None)
        if content is None:
            return
        hadoop_path, file_system = _hadoop_path(context, f"{path}/{MODEL_FILE}")
        out = file_system.create(hadoop_path, True)
        try:
            for first in range(0, len(content), CHUNK):
                out.write(content[first : first + CHUNK])
        finally:
            out.close()


class _Reader(DefaultParamsReader):  # type: ignore[type-arg]
    def load(self, path: str) -> Any:
        metadata = self.loadMetadata(path, self.sparkSession.sparkContext)
        wanted = f"{self.cls.__module__}.{self.cls.__name__}"
        if metadata["class"] != wanted:
            raise ValueError(f"{path} holds a {metadata['class']}, not a {wanted}")
        instance: Any = self.cls()
        instance._resetUid(metadata["uid"])
        values = metadata["paramMap"]
        if values.get("onProgress") is not None:
            values["onProgress"] = None  # a function, of which the file has the name only
        # Spark's converters refuse None.
        instance._set(**{name: values.pop(name) for name in [n for n, value in values.items() if value is None]})
        self.getAndSetParams(instance, metadata)
        if not hasattr(instance, "fit"):
            file = f"{path}/{MODEL_FILE}"
            hadoop_path, file_system = _hadoop_path(self.sparkSession.sparkContext, file)
            if not file_system.exists(hadoop_path):
                raise ValueError(f"{path} has no {MODEL_FILE}: it was not written completely")
            (row,) = self.sparkSession.read.format("binaryFile").load(file).select("content").collect()
            instance._content = bytes(row[0])
            instance._booster = model_from_bytes(instance._content, file)
        return instance


def _hadoop_path(context: Any, path: str) -> tuple[Any, Any]:
    """Return Hadoop's object for a path, and its file system."""
    hadoop_path = context._jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path, hadoop_path.getFileSystem(context._jsc.hadoopConfiguration())

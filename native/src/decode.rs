//! Records into Python objects, as fastavro reads them.

use pyo3::exceptions::PyException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyMemoryView};

use crate::bounds::check;
use crate::schema::{Id, Kind, Logical, Schema, refused};
use crate::wire::{Cursor, Refused, Result};

/// Decodes records of one schema, and calls a Python function for what it does not take.
#[pyclass(frozen, module = "serde_chain._native")]
pub struct Decoder {
    schema: Schema,
    logical: Py<PyDict>,
    otherwise: Py<PyAny>,
    longest: usize,
    /// Parts of a record, by itself and for each of its bytes, if they are counted.
    parts: Option<(usize, usize)>,
}

#[pymethods]
impl Decoder {
    /// Compile a schema.
    ///
    /// Args: the writer's schema in fastavro's parsed form, and the reader's or None; fastavro's functions for logical
    /// types; the function called with the arguments of `decode` if the bytes are not taken; the length in bytes from
    /// which all are left to it; and, for a schema whose records must be bounded, the maximum number of parts, by itself
    /// and for each byte.
    #[new]
    fn new(
        writer: &Bound<'_, PyAny>,
        reader: Option<&Bound<'_, PyAny>>,
        logical: Py<PyDict>,
        otherwise: Py<PyAny>,
        longest: Option<usize>,
        parts: Option<(usize, usize)>,
    ) -> PyResult<Self> {
        let schema = match (reader, parts) {
            (Some(_), Some(_)) => return refused("a few bytes may be any number of values"),
            (Some(reader), None) => Schema::resolve(writer, reader)?,
            (None, Some(_)) => Schema::compile_deep(writer)?,
            (None, None) => Schema::compile(writer, false)?,
        };
        Ok(Self { schema, logical, otherwise, longest: longest.unwrap_or(usize::MAX), parts })
    }

    /// Decode one record that starts at `start` and ends with the data.
    #[pyo3(signature = (data, start=0, /))]
    fn decode<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>, start: usize) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(value) = self.of_buffer(py, data, start) {
            return Ok(value);
        }
        match PyErr::take(py) {
            Some(error) if !error.is_instance_of::<PyException>(py) => Err(error), // an interrupt, for example
            _ => self.otherwise.bind(py).call1((data, start)),
        }
    }
}

impl Decoder {
    #[inline]
    fn of_buffer<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>, start: usize) -> Result<Bound<'py, PyAny>> {
        if let Ok(bytes) = data.cast_exact::<PyBytes>() {
            return self.of_bytes(py, bytes.as_bytes(), start);
        }
        let is_bytes = data.is_exact_instance_of::<PyByteArray>()
            || (data.is_exact_instance_of::<PyMemoryView>() && has_bytes(data).map_err(keep(py))?);
        if !is_bytes {
            return Err(Refused);
        }
        // A copy: functions of logical types could change the original meanwhile.
        let copy = owned(py, unsafe { ffi::PyBytes_FromObject(data.as_ptr()) })?;
        self.of_bytes(py, copy.cast_exact::<PyBytes>().map_err(|_| Refused)?.as_bytes(), start)
    }

    fn of_bytes<'py>(&self, py: Python<'py>, data: &[u8], start: usize) -> Result<Bound<'py, PyAny>> {
        let body = data.get(start..).ok_or(Refused)?;
        if body.len() > self.longest {
            return Err(Refused);
        }
        if let Some((own, of_byte)) = self.parts {
            check(&self.schema, body, own.saturating_add(of_byte.saturating_mul(body.len())))?;
        }
        let mut decoding = Decoding { py, schema: &self.schema, logical: &self.logical, cursor: Cursor::new(body) };
        let value = decoding.value(self.schema.root)?;
        if decoding.cursor.is_at_end() { Ok(value) } else { Err(Refused) }
    }
}

fn has_bytes(view: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(view.getattr("nbytes")?.extract::<usize>()? == view.len()?)
}

/// Restore a Python error, so that `decode` finds it.
pub fn keep(py: Python<'_>) -> impl Fn(PyErr) -> Refused {
    move |error| {
        error.restore(py);
        Refused
    }
}

#[inline]
pub fn owned<'py>(py: Python<'py>, pointer: *mut ffi::PyObject) -> Result<Bound<'py, PyAny>> {
    // SAFETY: the caller passes a new reference, or null if the call failed.
    unsafe { Bound::from_owned_ptr_or_opt(py, pointer) }.ok_or(Refused)
}

struct Decoding<'a, 'py> {
    py: Python<'py>,
    schema: &'a Schema,
    logical: &'a Py<PyDict>,
    cursor: Cursor<'a>,
}

impl<'py> Decoding<'_, 'py> {
    fn value(&mut self, id: Id) -> Result<Bound<'py, PyAny>> {
        let schema = self.schema;
        let kind = schema.get(id);
        let value = self.plain(&kind.kind)?;
        match &kind.logical {
            None => Ok(value),
            Some(logical) => self.converted(value, logical),
        }
    }

    #[inline]
    fn plain(&mut self, kind: &Kind) -> Result<Bound<'py, PyAny>> {
        let py = self.py;
        // SAFETY of the calls below: valid arguments, results owned by the caller.
        match kind {
            Kind::Null => Ok(py.None().into_bound(py)),
            Kind::Boolean => Ok(PyBool::new(py, self.cursor.boolean()?).to_owned().into_any()),
            Kind::Int | Kind::Long => owned(py, unsafe { ffi::PyLong_FromLongLong(self.cursor.long()?) }),
            Kind::Float => owned(py, unsafe { ffi::PyFloat_FromDouble(f64::from(self.cursor.float()?)) }),
            Kind::Double => owned(py, unsafe { ffi::PyFloat_FromDouble(self.cursor.double()?) }),
            Kind::LongAsDouble => owned(py, unsafe { ffi::PyFloat_FromDouble(self.cursor.long()? as f64) }),
            Kind::Bytes => bytes(py, self.cursor.bytes()?),
            Kind::StringAsBytes => {
                let text = self.cursor.bytes()?;
                std::str::from_utf8(text).map_err(|_| Refused)?;
                bytes(py, text)
            }
            Kind::Unresolved => Err(Refused),
            Kind::Fixed(size) => bytes(py, self.cursor.take(*size)?),
            Kind::String => self.string(),
            Kind::Enum(symbols) => {
                let index = self.cursor.index(symbols.symbols.len())?;
                Ok(symbols.symbols[index].as_ref().ok_or(Refused)?.bind(py).clone())
            }
            Kind::Union(branches) => {
                let branch = branches[self.cursor.index(branches.len())?];
                self.value(branch)
            }
            Kind::Record(record) => {
                let dict = owned(py, unsafe { ffi::PyDict_Copy(record.template.as_ptr()) })?;
                for field in &record.fields {
                    match &field.name {
                        Some(name) => {
                            let value = self.value(field.kind)?;
                            set(&dict, name.as_ptr(), &value)?;
                        }
                        None => self.skip(field.kind)?,
                    }
                }
                Ok(dict)
            }
            Kind::Array(items) => {
                let list = owned(py, unsafe { ffi::PyList_New(0) })?;
                loop {
                    let count = self.cursor.block()?;
                    if count == 0 {
                        return Ok(list);
                    }
                    for _ in 0..count {
                        let item = self.value(*items)?;
                        if unsafe { ffi::PyList_Append(list.as_ptr(), item.as_ptr()) } != 0 {
                            return Err(Refused);
                        }
                    }
                }
            }
            Kind::Map(values) => {
                let dict = owned(py, unsafe { ffi::PyDict_New() })?;
                loop {
                    let count = self.cursor.block()?;
                    if count == 0 {
                        return Ok(dict);
                    }
                    for _ in 0..count {
                        let key = self.string()?;
                        let value = self.value(*values)?;
                        set(&dict, key.as_ptr(), &value)?;
                    }
                }
            }
        }
    }

    fn skip(&mut self, id: Id) -> Result<()> {
        let schema = self.schema;
        match &schema.get(id).kind {
            Kind::Null => {}
            Kind::Boolean => _ = self.cursor.boolean()?,
            Kind::Int | Kind::Long | Kind::LongAsDouble => _ = self.cursor.long()?,
            Kind::Float => _ = self.cursor.take(4)?,
            Kind::Double => _ = self.cursor.take(8)?,
            Kind::Bytes | Kind::StringAsBytes | Kind::String => _ = self.cursor.bytes()?,
            Kind::Fixed(size) => _ = self.cursor.take(*size)?,
            Kind::Enum(symbols) => _ = self.cursor.index(symbols.symbols.len())?,
            Kind::Union(branches) => {
                let branch = branches[self.cursor.index(branches.len())?];
                self.skip(branch)?;
            }
            Kind::Record(record) => {
                for field in &record.fields {
                    self.skip(field.kind)?;
                }
            }
            Kind::Array(items) => loop {
                let count = self.cursor.block_to_skip()?;
                if count == 0 {
                    break;
                }
                for _ in 0..count {
                    self.skip(*items)?;
                }
            },
            Kind::Map(values) => loop {
                let count = self.cursor.block_to_skip()?;
                if count == 0 {
                    break;
                }
                for _ in 0..count {
                    self.cursor.bytes()?;
                    self.skip(*values)?;
                }
            },
            Kind::Unresolved => return Err(Refused),
        }
        Ok(())
    }

    #[inline]
    fn string(&mut self) -> Result<Bound<'py, PyAny>> {
        let text = self.cursor.bytes()?;
        // SAFETY: the pointer and the length are those of a slice, which is never longer than isize::MAX.
        owned(self.py, unsafe { ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), text.len() as ffi::Py_ssize_t) })
    }

    /// The value of a logical type; the plain one if fastavro has no function for it.
    fn converted(&self, value: Bound<'py, PyAny>, logical: &Logical) -> Result<Bound<'py, PyAny>> {
        let py = self.py;
        let keep = keep(py);
        match self.logical.bind(py).get_item(&logical.key).map_err(&keep)? {
            Some(convert) => convert.call1((value, &logical.schema, py.None())).map_err(keep),
            None => Ok(value),
        }
    }
}

#[inline]
fn bytes<'py>(py: Python<'py>, data: &[u8]) -> Result<Bound<'py, PyAny>> {
    // SAFETY: as above.
    owned(py, unsafe { ffi::PyBytes_FromStringAndSize(data.as_ptr().cast(), data.len() as ffi::Py_ssize_t) })
}

#[inline]
fn set(dict: &Bound<'_, PyAny>, key: *mut ffi::PyObject, value: &Bound<'_, PyAny>) -> Result<()> {
    // SAFETY: the dictionary is this module's own, and the key a string.
    if unsafe { ffi::PyDict_SetItem(dict.as_ptr(), key, value.as_ptr()) } == 0 { Ok(()) } else { Err(Refused) }
}

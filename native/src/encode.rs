//! Python objects into records, as fastavro writes them.

use std::cell::Cell;

use pyo3::exceptions::{PyException, PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::decode::keep;
use crate::schema::{Enum, Id, Kind, Logical, Record, Schema};
use crate::wire::{Refused, Result, write_bytes, write_long};

/// From this length in bytes on, a value is copied only once, into the result.
const LARGE: usize = 64 << 10;

/// The longest buffer in bytes that a thread keeps: to get memory for a large record anew takes longer than to encode it.
const MOST_KEPT: usize = 4 << 20;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Encodes records of one schema, and calls a Python function for values that it does not take.
#[pyclass(frozen, module = "serde_chain._native")]
pub struct Encoder {
    schema: Schema,
    logical: Py<PyDict>,
    otherwise: Py<PyAny>,
    prefix: Vec<u8>,
}

#[pymethods]
impl Encoder {
    /// Compile a schema.
    ///
    /// Args: the schema in fastavro's parsed form; fastavro's functions for logical types; the function called with
    /// a value that is not taken; the bytes in front of each record; and whether schemas with maps are refused,
    /// since equal maps must give equal bytes.
    #[new]
    fn new(
        schema: &Bound<'_, PyAny>,
        logical: Py<PyDict>,
        otherwise: Py<PyAny>,
        prefix: Vec<u8>,
        ordered: bool,
    ) -> PyResult<Self> {
        let schema = Schema::compile(schema, true)?;
        if ordered && schema.types.iter().any(|each| matches!(each.kind, Kind::Map(_))) {
            return Err(PyValueError::new_err("it has maps"));
        }
        Ok(Self { schema, logical, otherwise, prefix })
    }

    /// Encode one record.
    #[pyo3(signature = (data, /))]
    fn encode<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let mut out = SPARE.take();
        out.clear();
        out.extend_from_slice(&self.prefix);
        let mut encoding = Encoding { py, schema: &self.schema, logical: &self.logical, out, large: Vec::new() };
        let taken = encoding.value(self.schema.root, data).is_ok();
        let Encoding { out, large, .. } = encoding;
        let record = taken.then(|| joined(py, &out, &large)).transpose()?;
        if out.capacity() <= MOST_KEPT {
            SPARE.set(out);
        }
        if let Some(record) = record {
            return Ok(record);
        }
        match PyErr::take(py) {
            Some(error) if !error.is_instance_of::<PyException>(py) => Err(error), // an interrupt, for example
            _ => self.otherwise.bind(py).call1((data,)),
        }
    }
}

struct Encoding<'a, 'py> {
    py: Python<'py>,
    schema: &'a Schema,
    logical: &'a Py<PyDict>,
    out: Vec<u8>,
    /// Large values, and their places in `out`.
    large: Vec<(usize, Bound<'py, PyBytes>)>,
}

/// The record, with its large values.
fn joined<'py>(py: Python<'py>, out: &[u8], large: &[(usize, Bound<'py, PyBytes>)]) -> PyResult<Bound<'py, PyAny>> {
    if large.is_empty() {
        return Ok(PyBytes::new(py, out).into_any());
    }
    let size = large.iter().fold(out.len(), |size, (_, value)| size.saturating_add(value.as_bytes().len()));
    let size = ffi::Py_ssize_t::try_from(size).map_err(|_| PyMemoryError::new_err(()))?;
    // SAFETY: the object is new, so that its memory may be written, and has as many bytes as are written.
    unsafe {
        let record = Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))?;
        let mut to = ffi::PyBytes_AsString(record.as_ptr()).cast::<u8>();
        let mut write = |data: &[u8]| {
            to.copy_from_nonoverlapping(data.as_ptr(), data.len());
            to = to.add(data.len());
        };
        let mut done = 0;
        for (place, value) in large {
            write(&out[done..*place]);
            write(value.as_bytes());
            done = *place;
        }
        write(&out[done..]);
        Ok(record)
    }
}

impl<'py> Encoding<'_, 'py> {
    fn value(&mut self, id: Id, value: &Bound<'py, PyAny>) -> Result<()> {
        let schema = self.schema;
        let kind = schema.get(id);
        match &kind.logical {
            None => self.plain(&kind.kind, value),
            Some(logical) => {
                let prepared = self.prepared(value, logical)?;
                self.plain(&kind.kind, &prepared)
            }
        }
    }

    #[inline]
    fn plain(&mut self, kind: &Kind, value: &Bound<'py, PyAny>) -> Result<()> {
        match kind {
            Kind::Null => {
                if !value.is_none() {
                    return Err(Refused);
                }
            }
            Kind::Boolean => {
                let value = value.cast_exact::<PyBool>().map_err(|_| Refused)?;
                self.out.push(u8::from(value.is_true()));
            }
            Kind::Int => {
                let number = self.integer(value)?;
                // fastavro accepts more than 32 bits, outside of unions.
                i32::try_from(number).map_err(|_| Refused)?;
                write_long(&mut self.out, number);
            }
            Kind::Long => {
                let number = self.integer(value)?;
                write_long(&mut self.out, number);
            }
            Kind::Float => {
                let number = self.number(value)? as f32;
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            Kind::Double => {
                let number = self.number(value)?;
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            Kind::Bytes => {
                let data = bytes(value)?;
                write_long(&mut self.out, data.as_bytes().len() as i64);
                self.add(data);
            }
            Kind::Fixed(size) => {
                let data = bytes(value)?;
                if data.as_bytes().len() != *size {
                    return Err(Refused);
                }
                self.add(data);
            }
            Kind::String => write_bytes(&mut self.out, text(value)?),
            Kind::Enum(symbols) => self.symbol(symbols, value)?,
            Kind::Array(items) => self.array(*items, value)?,
            Kind::Map(values) => self.map(*values, value)?,
            Kind::Union(branches) => {
                let branch = self.branch(branches, value)?;
                write_long(&mut self.out, branch as i64);
                self.value(branches[branch], value)?;
            }
            Kind::Record(record) => self.record(record, value)?,
            Kind::LongAsDouble | Kind::StringAsBytes | Kind::Unresolved => return Err(Refused), // read only
        }
        Ok(())
    }

    #[inline]
    fn add(&mut self, data: &Bound<'py, PyBytes>) {
        if data.as_bytes().len() < LARGE {
            self.out.extend_from_slice(data.as_bytes());
        } else {
            self.large.push((self.out.len(), data.clone()));
        }
    }

    #[inline]
    fn integer(&self, value: &Bound<'py, PyAny>) -> Result<i64> {
        if !value.is_exact_instance_of::<PyInt>() {
            return Err(Refused);
        }
        // SAFETY: the object is an int.
        let number = unsafe { ffi::PyLong_AsLongLong(value.as_ptr()) };
        if number == -1 && PyErr::occurred(self.py) { Err(Refused) } else { Ok(number) }
    }

    /// A float, or an int that fastavro converts into one.
    #[inline]
    fn number(&self, value: &Bound<'py, PyAny>) -> Result<f64> {
        if let Ok(number) = value.cast_exact::<PyFloat>() {
            return Ok(number.value());
        }
        if !value.is_exact_instance_of::<PyInt>() {
            return Err(Refused);
        }
        // SAFETY: the object is an int.
        let number = unsafe { ffi::PyLong_AsDouble(value.as_ptr()) };
        if number == -1.0 && PyErr::occurred(self.py) { Err(Refused) } else { Ok(number) }
    }

    fn symbol(&mut self, symbols: &Enum, value: &Bound<'py, PyAny>) -> Result<()> {
        if !value.is_exact_instance_of::<PyString>() {
            return Err(Refused);
        }
        let index = symbols.indexes.bind(self.py).get_item(value).map_err(keep(self.py))?.ok_or(Refused)?;
        let index = self.integer(&index)?;
        write_long(&mut self.out, index);
        Ok(())
    }

    fn array(&mut self, items: Id, value: &Bound<'py, PyAny>) -> Result<()> {
        let list = value.cast_exact::<PyList>().map_err(|_| Refused)?;
        let count = list.len();
        if count > 0 {
            write_long(&mut self.out, count as i64);
            for index in 0..count {
                // Fails if a function of a logical type has shortened the list meanwhile.
                let item = list.get_item(index).map_err(keep(self.py))?;
                self.value(items, &item)?;
            }
        }
        self.out.push(0);
        Ok(())
    }

    fn map(&mut self, values: Id, value: &Bound<'py, PyAny>) -> Result<()> {
        let dict = value.cast_exact::<PyDict>().map_err(|_| Refused)?;
        let count = dict.len();
        if count > 0 {
            write_long(&mut self.out, count as i64);
            let mut written = 0;
            let mut position: ffi::Py_ssize_t = 0;
            let (mut key, mut item) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: valid arguments. A function of a logical type may change the dictionary meanwhile, so both
            // objects are owned as long as they are used, and the number of items is compared at the end.
            while unsafe { ffi::PyDict_Next(dict.as_ptr(), &mut position, &mut key, &mut item) } != 0 {
                let (key, item) =
                    unsafe { (Bound::from_borrowed_ptr(self.py, key), Bound::from_borrowed_ptr(self.py, item)) };
                write_bytes(&mut self.out, text(&key)?);
                self.value(values, &item)?;
                written += 1;
                if written > count {
                    return Err(Refused);
                }
            }
            if written != count || dict.len() != count {
                return Err(Refused);
            }
        }
        self.out.push(0);
        Ok(())
    }

    fn record(&mut self, record: &Record, value: &Bound<'py, PyAny>) -> Result<()> {
        let dict = value.cast_exact::<PyDict>().map_err(|_| Refused)?;
        let mut found = 0;
        for field in &record.fields {
            let name = field.name.as_ref().ok_or(Refused)?;
            // SAFETY: a dictionary and a string; the result is borrowed, and owned at once.
            let item = unsafe {
                let item = ffi::PyDict_GetItemWithError(dict.as_ptr(), name.as_ptr());
                Bound::from_borrowed_ptr_or_opt(self.py, item)
            };
            match item {
                Some(item) => {
                    found += 1;
                    self.value(field.kind, &item)?;
                }
                None if PyErr::occurred(self.py) => return Err(Refused),
                None => {
                    let default = field.default.as_ref().ok_or(Refused)?;
                    self.value(field.kind, default.bind(self.py))?;
                }
            }
        }
        // Within unions, fastavro compares this key with the record's name.
        if dict.len() != found && dict.contains("-type").map_err(keep(self.py))? {
            return Err(Refused);
        }
        Ok(())
    }

    /// The branch that fastavro writes: the first that matches. No two match, except `int` and `long`.
    fn branch(&self, branches: &[Id], value: &Bound<'py, PyAny>) -> Result<usize> {
        let schema = self.schema;
        if let [first, second] = *branches {
            let nulls = (self.is_null(first), self.is_null(second));
            match (nulls, value.is_none()) {
                ((true, false), is_none) => return Ok(usize::from(!is_none)),
                ((false, true), false) => return Ok(0),
                ((false, true), true) => {
                    // fastavro asks the first branch first.
                    if let Some(logical) = &schema.get(first).logical
                        && !self.prepared(value, logical)?.is_none()
                    {
                        return Err(Refused);
                    }
                    return Ok(1);
                }
                _ => {}
            }
        }
        for (index, &branch) in branches.iter().enumerate() {
            let matches = match &schema.get(branch).kind {
                Kind::Null => value.is_none(),
                Kind::Boolean => value.is_exact_instance_of::<PyBool>(),
                Kind::Int => value.is_exact_instance_of::<PyInt>() && i32::try_from(self.integer(value)?).is_ok(),
                Kind::Long => value.is_exact_instance_of::<PyInt>(),
                Kind::Float | Kind::Double => {
                    value.is_exact_instance_of::<PyFloat>() || value.is_exact_instance_of::<PyInt>()
                }
                Kind::String | Kind::Enum(_) => value.is_exact_instance_of::<PyString>(),
                Kind::Bytes | Kind::Fixed(_) => value.is_exact_instance_of::<PyBytes>(),
                Kind::Array(_) => value.is_exact_instance_of::<PyList>(),
                Kind::Map(_) | Kind::Record(_) => value.is_exact_instance_of::<PyDict>(),
                _ => false, // not in a union, or read only
            };
            if matches {
                return Ok(index);
            }
        }
        Err(Refused)
    }

    fn is_null(&self, id: Id) -> bool {
        matches!(self.schema.get(id).kind, Kind::Null)
    }

    /// The plain value of a logical type's value, by fastavro's function, if it has one.
    fn prepared(&self, value: &Bound<'py, PyAny>, logical: &Logical) -> Result<Bound<'py, PyAny>> {
        let py = self.py;
        let keep = keep(py);
        match self.logical.bind(py).get_item(&logical.key).map_err(&keep)? {
            Some(prepare) => prepare.call1((value, &logical.schema)).map_err(keep),
            None => Ok(value.clone()),
        }
    }
}

#[inline]
fn bytes<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Result<&'a Bound<'py, PyBytes>> {
    value.cast_exact::<PyBytes>().map_err(|_| Refused)
}

#[inline]
fn text<'a>(value: &'a Bound<'_, PyAny>) -> Result<&'a [u8]> {
    if !value.is_exact_instance_of::<PyString>() {
        return Err(Refused);
    }
    let mut size: ffi::Py_ssize_t = 0;
    // SAFETY: the object is a str, which keeps its UTF-8 as long as it lives; null if it has surrogates.
    unsafe {
        let data = ffi::PyUnicode_AsUTF8AndSize(value.as_ptr(), &mut size);
        if data.is_null() {
            return Err(Refused);
        }
        Ok(std::slice::from_raw_parts(data.cast(), size as usize))
    }
}

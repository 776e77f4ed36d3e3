//! Columns of records into Arrow arrays, over the Arrow C data interface.
//!
//! A compiled `Plan` follows the bytes of the writer's schema, and appends to `Builder`s that follow the Arrow type.
//! A record that is not taken leaves no trace in the builders; its row is null, and its number is returned.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyCapsule, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::schema::{is_promotion, size_of};
use crate::wire::{Cursor, Refused, Result};

const MOST_LEVELS: usize = 150;
/// pyarrow imports types of at most 64 levels, and a map has two.
const MOST_ARROW_LEVELS: usize = 60;
/// Up to this number, keys of a map are compared pair by pair.
const FEW_KEYS: usize = 16;
pub const ARRAY: &CStr = c"arrow_array";

/// `ArrowArray` of the C data interface.
#[repr(C)]
pub struct ArrowArray {
    pub length: i64,
    null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut ArrowArray,
    pub dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// Validity, offsets and data.
const MOST_BUFFERS: usize = 3;

/// What an exported array owns; in one allocation for the most part, since arrays of few records are made often.
struct Owned {
    _buffers: [Option<Buffer>; MOST_BUFFERS],
    pointers: [*const c_void; MOST_BUFFERS],
    children: Vec<ArrowArray>,
    child_pointers: Vec<*mut ArrowArray>,
}

/// The memory of one buffer; never read from here again.
#[allow(dead_code)]
enum Buffer {
    Bytes(Vec<u8>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I128(Vec<i128>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Buffer {
    fn pointer(&self) -> *const c_void {
        match self {
            Buffer::Bytes(data) => data.as_ptr().cast(),
            Buffer::I32(data) => data.as_ptr().cast(),
            Buffer::I64(data) => data.as_ptr().cast(),
            Buffer::I128(data) => data.as_ptr().cast(),
            Buffer::F32(data) => data.as_ptr().cast(),
            Buffer::F64(data) => data.as_ptr().cast(),
        }
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the interface calls this once, with an array made by `exported`. A consumer that has moved a child out
    // has cleared its callback.
    unsafe {
        let mut owned = Box::from_raw((*array).private_data.cast::<Owned>());
        for child in &mut owned.children {
            if let Some(release) = child.release {
                release(child);
            }
        }
        (*array).release = None;
    }
}

/// An array with a bitmap of its own, and one or two buffers; `null` arrays have none.
fn exported(length: usize, validity: Validity, buffers: [Option<Buffer>; 2], children: Vec<ArrowArray>) -> ArrowArray {
    let bits = validity.0.filter(|bits| bits.unset > 0);
    let null_count = bits.as_ref().map_or(0, |bits| bits.unset as i64);
    let [first, second] = buffers;
    let n_buffers = 1 + i64::from(first.is_some()) + i64::from(second.is_some());
    let n_children = children.len() as i64;
    let buffers = [bits.map(|bits| Buffer::Bytes(bits.data)), first, second];
    let pointers = buffers.each_ref().map(|buffer| buffer.as_ref().map_or(ptr::null(), Buffer::pointer));
    let mut owned = Box::new(Owned { _buffers: buffers, pointers, children, child_pointers: Vec::new() });
    owned.child_pointers = owned.children.iter_mut().map(ptr::from_mut).collect();
    // SAFETY of the pointers: into a box and vectors that neither move nor change until they are released.
    let owned = Box::into_raw(owned);
    let (buffers, children) = unsafe { ((&raw mut (*owned).pointers).cast(), (*owned).child_pointers.as_mut_ptr()) };
    ArrowArray {
        length: length as i64,
        null_count,
        offset: 0,
        n_buffers,
        n_children,
        buffers,
        children,
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: owned.cast(),
    }
}

/// An exported array on its way to the consumer.
struct Held(ArrowArray);

// SAFETY: the array owns all that it points to.
unsafe impl Send for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the consumer has not taken it.
            unsafe { release(&mut self.0) };
        }
    }
}

unsafe extern "C" fn release_capsule(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: made by `capsule` below.
    unsafe {
        let pointer = pyo3::ffi::PyCapsule_GetPointer(capsule, ARRAY.as_ptr());
        if !pointer.is_null() {
            drop(Box::from_raw(pointer.cast::<Held>()));
        }
    }
}

pub fn capsule<'py>(py: Python<'py>, array: ArrowArray) -> PyResult<Bound<'py, PyAny>> {
    let held = Box::into_raw(Box::new(Held(array)));
    // SAFETY: `Held` has the layout of its only field, which the interface expects; the capsule owns it.
    unsafe {
        let made = pyo3::ffi::PyCapsule_New(held.cast(), ARRAY.as_ptr(), Some(release_capsule));
        if made.is_null() {
            drop(Box::from_raw(held));
            return Err(PyErr::fetch(py));
        }
        Ok(Bound::from_owned_ptr(py, made))
    }
}

/// A bitmap, least significant bit first.
#[derive(Default)]
pub struct Bits {
    data: Vec<u8>,
    len: usize,
    unset: usize,
}

impl Bits {
    #[inline]
    fn push(&mut self, bit: bool) {
        if self.len & 7 == 0 {
            self.data.push(0);
        }
        if bit {
            self.data[self.len >> 3] |= 1 << (self.len & 7);
        } else {
            self.unset += 1;
        }
        self.len += 1;
    }

    fn truncate(&mut self, len: usize) {
        while self.len > len {
            self.len -= 1;
            let (byte, bit) = (self.len >> 3, 1u8 << (self.len & 7));
            if self.data[byte] & bit == 0 {
                self.unset -= 1;
            }
            self.data[byte] &= !bit;
        }
        self.data.truncate(self.len.div_ceil(8));
    }
}

/// Which entries are valid; no bitmap before the first null.
#[derive(Default)]
pub struct Validity(Option<Bits>);

impl Validity {
    #[inline]
    fn valid(&mut self) {
        if let Some(bits) = &mut self.0 {
            bits.push(true);
        }
    }

    fn null(&mut self, len: usize) {
        let bits = self.0.get_or_insert_with(|| Bits { data: vec![0xFF; len / 8], len: len & !7, unset: 0 });
        while bits.len < len {
            bits.push(true);
        }
        bits.push(false);
    }

    fn truncate(&mut self, len: usize) {
        if let Some(bits) = &mut self.0 {
            bits.truncate(len);
        }
    }
}

pub struct Builder {
    len: usize,
    validity: Validity,
    values: Values,
}

pub enum Values {
    Null,
    Bool(Bits),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    /// Decimals.
    I128(Vec<i128>),
    /// Strings and bytes.
    Binary(Vec<i32>, Vec<u8>),
    List(Vec<i32>, Box<Builder>),
    Map(Vec<i32>, Box<[Builder; 2]>),
    Struct(Vec<Builder>),
}

#[inline]
fn offset(size: usize) -> Result<i32> {
    i32::try_from(size).map_err(|_| Refused)
}

impl Builder {
    /// Args: the layout, and the number of values to come, 0 if it is unknown.
    pub fn new(kind: &Type, rows: usize) -> Self {
        let offsets = || {
            let mut offsets = Vec::with_capacity(rows + 1);
            offsets.push(0);
            offsets
        };
        let values = match kind {
            Type::Null => Values::Null,
            Type::Bool => Values::Bool(Bits::default()),
            Type::I32 => Values::I32(Vec::with_capacity(rows)),
            Type::I64 | Type::Millis => Values::I64(Vec::with_capacity(rows)),
            Type::F32 => Values::F32(Vec::with_capacity(rows)),
            Type::F64 => Values::F64(Vec::with_capacity(rows)),
            Type::I128 => Values::I128(Vec::with_capacity(rows)),
            Type::Binary | Type::String => Values::Binary(offsets(), Vec::new()),
            Type::List(item) => Values::List(offsets(), Box::new(Builder::new(item, 0))),
            Type::Map(value) => {
                Values::Map(offsets(), Box::new([Builder::new(&Type::String, 0), Builder::new(value, 0)]))
            }
            Type::Struct(fields) => Values::Struct(fields.iter().map(|(_, kind)| Builder::new(kind, rows)).collect()),
        };
        Self { len: 0, validity: Validity::default(), values }
    }

    #[inline]
    fn added(&mut self) {
        self.validity.valid();
        self.len += 1;
    }

    /// Append a null.
    pub fn null(&mut self) {
        self.validity.null(self.len);
        self.empty_value();
        self.len += 1;
    }

    /// Append a value that is behind a null of the parent.
    fn empty(&mut self) {
        self.empty_value();
        self.added();
    }

    fn empty_value(&mut self) {
        match &mut self.values {
            Values::Null => {}
            Values::Bool(bits) => bits.push(false),
            Values::I32(values) => values.push(0),
            Values::I64(values) => values.push(0),
            Values::F32(values) => values.push(0.0),
            Values::F64(values) => values.push(0.0),
            Values::I128(values) => values.push(0),
            Values::Binary(offsets, _) | Values::List(offsets, _) | Values::Map(offsets, _) => {
                offsets.push(offsets[offsets.len() - 1]);
            }
            Values::Struct(fields) => fields.iter_mut().for_each(Builder::empty),
        }
    }

    #[inline]
    pub fn binary(&mut self, value: &[u8]) -> Result<()> {
        let Values::Binary(offsets, data) = &mut self.values else { return Err(Refused) };
        let end = offset(data.len() + value.len())?;
        data.extend_from_slice(value);
        offsets.push(end);
        self.added();
        Ok(())
    }

    /// Forget what was appended after the first `len` values.
    fn truncate(&mut self, len: usize) {
        // A value that failed midway has more children than its own length says: offsets and children are cut too.
        self.validity.truncate(len);
        self.len = self.len.min(len);
        match &mut self.values {
            Values::Null => {}
            Values::Bool(bits) => bits.truncate(len),
            Values::I32(values) => values.truncate(len),
            Values::I64(values) => values.truncate(len),
            Values::F32(values) => values.truncate(len),
            Values::F64(values) => values.truncate(len),
            Values::I128(values) => values.truncate(len),
            Values::Binary(offsets, data) => {
                offsets.truncate(len + 1);
                data.truncate(offsets[offsets.len() - 1] as usize);
            }
            Values::List(offsets, item) => {
                offsets.truncate(len + 1);
                item.truncate(offsets[offsets.len() - 1] as usize);
            }
            Values::Map(offsets, entries) => {
                offsets.truncate(len + 1);
                let last = offsets[offsets.len() - 1] as usize;
                entries.iter_mut().for_each(|each| each.truncate(last));
            }
            Values::Struct(fields) => fields.iter_mut().for_each(|field| field.truncate(len)),
        }
    }

    pub fn export(self) -> ArrowArray {
        let (len, validity) = (self.len, self.validity);
        let leaf = |validity, buffer| exported(len, validity, [Some(buffer), None], Vec::new());
        match self.values {
            Values::Null => {
                let mut array = exported(len, Validity::default(), [None, None], Vec::new());
                (array.null_count, array.n_buffers) = (len as i64, 0);
                array
            }
            Values::Bool(bits) => leaf(validity, Buffer::Bytes(bits.data)),
            Values::I32(values) => leaf(validity, Buffer::I32(values)),
            Values::I64(values) => leaf(validity, Buffer::I64(values)),
            Values::F32(values) => leaf(validity, Buffer::F32(values)),
            Values::F64(values) => leaf(validity, Buffer::F64(values)),
            Values::I128(values) => leaf(validity, Buffer::I128(values)),
            Values::Binary(offsets, data) => {
                let buffers = [Some(Buffer::I32(offsets)), Some(Buffer::Bytes(data))];
                exported(len, validity, buffers, Vec::new())
            }
            Values::List(offsets, item) => {
                exported(len, validity, [Some(Buffer::I32(offsets)), None], vec![item.export()])
            }
            Values::Map(offsets, entries) => {
                let [keys, items] = *entries;
                let children = vec![keys.export(), items.export()];
                let entries = exported(children[0].length as usize, Validity::default(), [None, None], children);
                exported(len, validity, [Some(Buffer::I32(offsets)), None], vec![entries])
            }
            Values::Struct(fields) => {
                exported(len, validity, [None, None], fields.into_iter().map(Builder::export).collect())
            }
        }
    }
}

/// The layout of an Arrow type.
pub enum Type {
    Null,
    Bool,
    I32,
    I64,
    /// Microseconds, of a schema that has milliseconds.
    Millis,
    F32,
    F64,
    I128,
    Binary,
    String,
    List(Box<Type>),
    Map(Box<Type>),
    Struct(Vec<(String, Type)>),
}

impl Type {
    /// The layout of a `pyarrow.DataType`; the second has timestamps in the schema's unit.
    fn of(kind: &Bound<'_, PyAny>, as_read: &Bound<'_, PyAny>, level: usize) -> PyResult<Self> {
        if level > MOST_ARROW_LEVELS {
            return refused("the type nests too deeply");
        }
        let (text, read): (String, String) = (kind.str()?.extract()?, as_read.str()?.extract()?);
        let inner = |name: &str| -> PyResult<Box<Type>> {
            Ok(Box::new(Type::of(&kind.getattr(name)?, &as_read.getattr(name)?, level + 1)?))
        };
        Ok(match (text.as_str(), read.as_str()) {
            (text, _) if text.starts_with("list<") => Type::List(inner("value_type")?),
            (text, _) if text.starts_with("map<string, ") => {
                Type::Map(Box::new(Type::of(&kind.getattr("item_type")?, &as_read.getattr("item_type")?, level + 2)?))
            }
            (text, _) if text.starts_with("struct<") => {
                let count: usize = kind.getattr("num_fields")?.extract()?;
                let mut fields = Vec::with_capacity(count);
                for at in 0..count {
                    let (field, other) = (kind.call_method1("field", (at,))?, as_read.call_method1("field", (at,))?);
                    let inner = Type::of(&field.getattr("type")?, &other.getattr("type")?, level + 1)?;
                    fields.push((field.getattr("name")?.extract()?, inner));
                }
                Type::Struct(fields)
            }
            ("timestamp[us]", "timestamp[ms]") | ("timestamp[us, tz=UTC]", "timestamp[ms, tz=UTC]") => Type::Millis,
            (text, read) if text != read => return refused("the types differ"),
            ("null", _) => Type::Null,
            ("bool", _) => Type::Bool,
            ("int32" | "date32[day]", _) => Type::I32,
            ("int64" | "timestamp[us]" | "timestamp[us, tz=UTC]", _) => Type::I64,
            ("float", _) => Type::F32,
            ("double", _) => Type::F64,
            ("binary", _) => Type::Binary,
            ("string", _) => Type::String,
            (text, _) if text.starts_with("decimal128(") => Type::I128,
            _ => return refused("a type is not supported"),
        })
    }
}

/// How the bytes of a writer's type are read into a builder.
enum Plan {
    Null,
    Boolean,
    Int,
    Long,
    /// A `long` in milliseconds, into microseconds.
    Millis,
    Float,
    Double,
    Bytes,
    Fixed(usize),
    /// The precision of a decimal in `bytes`, or in so many bytes.
    Decimal(Option<usize>, u32),
    String,
    Enum(Vec<Option<Box<[u8]>>>),
    Array(Box<Plan>),
    Map(Box<Plan>),
    Union(Vec<Plan>),
    Record(Vec<Step>, Vec<(usize, Constant)>),
    /// A branch that the reader's schema lacks.
    Unresolved,
}

enum Step {
    Into(usize, Plan),
    Skip(Plan),
}

/// The value of a field that the writer's schema lacks.
enum Constant {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Bytes(Box<[u8]>),
}

impl Plan {
    fn read(&self, cursor: &mut Cursor<'_>, to: &mut Builder) -> Result<()> {
        match self {
            Plan::Null => to.null(),
            Plan::Boolean => {
                let value = cursor.boolean()?;
                let Values::Bool(bits) = &mut to.values else { return Err(Refused) };
                bits.push(value);
                to.added();
            }
            Plan::Int => {
                // fastavro reads more than 32 bits as well.
                let value = i32::try_from(cursor.long()?).map_err(|_| Refused)?;
                match &mut to.values {
                    Values::I32(values) => values.push(value),
                    Values::I64(values) => values.push(i64::from(value)),
                    Values::F32(values) => values.push(value as f32),
                    Values::F64(values) => values.push(f64::from(value)),
                    _ => return Err(Refused),
                }
                to.added();
            }
            Plan::Long => {
                let value = cursor.long()?;
                match &mut to.values {
                    Values::I64(values) => values.push(value),
                    Values::F32(values) => values.push(value as f32),
                    Values::F64(values) => values.push(value as f64),
                    _ => return Err(Refused),
                }
                to.added();
            }
            Plan::Millis => {
                let value = cursor.long()?.checked_mul(1000).ok_or(Refused)?;
                let Values::I64(values) = &mut to.values else { return Err(Refused) };
                values.push(value);
                to.added();
            }
            Plan::Float => {
                let value = cursor.float()?;
                match &mut to.values {
                    Values::F32(values) => values.push(value),
                    Values::F64(values) => values.push(f64::from(value)),
                    _ => return Err(Refused),
                }
                to.added();
            }
            Plan::Double => {
                let value = cursor.double()?;
                let Values::F64(values) = &mut to.values else { return Err(Refused) };
                values.push(value);
                to.added();
            }
            Plan::Bytes => to.binary(cursor.bytes()?)?,
            Plan::Fixed(size) => to.binary(cursor.take(*size)?)?,
            Plan::Decimal(size, precision) => {
                let data = match size {
                    Some(size) => cursor.take(*size)?,
                    None => cursor.bytes()?,
                };
                let value = decimal(data, *precision)?;
                let Values::I128(values) = &mut to.values else { return Err(Refused) };
                values.push(value);
                to.added();
            }
            Plan::String => to.binary(text(cursor)?)?,
            Plan::Enum(symbols) => {
                let symbol = &symbols[cursor.index(symbols.len())?];
                to.binary(symbol.as_ref().ok_or(Refused)?)?;
            }
            Plan::Array(item) => {
                let Values::List(offsets, items) = &mut to.values else { return Err(Refused) };
                loop {
                    let count = cursor.block()?;
                    if count == 0 {
                        break;
                    }
                    for _ in 0..count {
                        item.read(cursor, items)?;
                    }
                }
                offsets.push(offset(items.len)?);
                to.added();
            }
            Plan::Map(value) => {
                let Values::Map(offsets, entries) = &mut to.values else { return Err(Refused) };
                let [keys, values] = &mut **entries;
                let first = keys.len;
                loop {
                    let count = cursor.block()?;
                    if count == 0 {
                        break;
                    }
                    for _ in 0..count {
                        keys.binary(text(cursor)?)?;
                        value.read(cursor, values)?;
                    }
                }
                if has_twice(keys, first) {
                    return Err(Refused); // the last value counts
                }
                offsets.push(offset(keys.len)?);
                to.added();
            }
            Plan::Union(branches) => branches[cursor.index(branches.len())?].read(cursor, to)?,
            Plan::Record(steps, absent) => {
                let Values::Struct(fields) = &mut to.values else { return Err(Refused) };
                for step in steps {
                    match step {
                        Step::Into(at, plan) => plan.read(cursor, &mut fields[*at])?,
                        Step::Skip(plan) => plan.skip(cursor)?,
                    }
                }
                for (at, constant) in absent {
                    constant.append(&mut fields[*at])?;
                }
                to.added();
            }
            Plan::Unresolved => return Err(Refused),
        }
        Ok(())
    }

    fn skip(&self, cursor: &mut Cursor<'_>) -> Result<()> {
        match self {
            Plan::Null => {}
            Plan::Boolean => _ = cursor.boolean()?,
            Plan::Int | Plan::Long | Plan::Millis => _ = cursor.long()?,
            Plan::Float => _ = cursor.take(4)?,
            Plan::Double => _ = cursor.take(8)?,
            Plan::Bytes | Plan::Decimal(None, _) => _ = cursor.bytes()?,
            Plan::Fixed(size) | Plan::Decimal(Some(size), _) => _ = cursor.take(*size)?,
            Plan::String => _ = text(cursor)?,
            Plan::Enum(symbols) => _ = cursor.index(symbols.len())?,
            Plan::Array(item) => loop {
                let count = cursor.block_to_skip()?;
                if count == 0 {
                    break;
                }
                for _ in 0..count {
                    item.skip(cursor)?;
                }
            },
            Plan::Map(value) => loop {
                let count = cursor.block_to_skip()?;
                if count == 0 {
                    break;
                }
                for _ in 0..count {
                    text(cursor)?;
                    value.skip(cursor)?;
                }
            },
            Plan::Union(branches) => branches[cursor.index(branches.len())?].skip(cursor)?,
            Plan::Record(steps, _) => {
                for step in steps {
                    match step {
                        Step::Into(_, plan) | Step::Skip(plan) => plan.skip(cursor)?,
                    }
                }
            }
            Plan::Unresolved => return Err(Refused),
        }
        Ok(())
    }
}

#[inline]
fn text<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8]> {
    let data = cursor.bytes()?;
    if data.is_ascii() || std::str::from_utf8(data).is_ok() { Ok(data) } else { Err(Refused) }
}

/// A big-endian number with at most so many digits; sign padding is allowed.
fn decimal(data: &[u8], precision: u32) -> Result<i128> {
    let negative = data.first().is_some_and(|&byte| byte >= 0x80);
    let fill = if negative { 0xFF } else { 0 };
    let (padding, digits) = data.split_at(data.len().saturating_sub(16));
    if padding.iter().any(|&byte| byte != fill) {
        return Err(Refused);
    }
    let mut bytes = [fill; 16];
    bytes[16 - digits.len()..].copy_from_slice(digits);
    let value = i128::from_be_bytes(bytes);
    let beyond = 10i128.checked_pow(precision).ok_or(Refused)?;
    if (negative && value >= 0) || (!negative && value < 0) || value <= -beyond || value >= beyond {
        return Err(Refused);
    }
    Ok(value)
}

/// Whether a key occurs twice among those from `first` on.
fn has_twice(keys: &Builder, first: usize) -> bool {
    let Values::Binary(offsets, data) = &keys.values else { return true };
    let ends = &offsets[first..];
    let key = |at: usize| &data[ends[at] as usize..ends[at + 1] as usize];
    let count = ends.len() - 1;
    if count <= FEW_KEYS {
        return (1..count).any(|at| (0..at).any(|other| key(other) == key(at)));
    }
    let mut all: Vec<&[u8]> = (0..count).map(key).collect();
    all.sort_unstable();
    all.windows(2).any(|pair| pair[0] == pair[1])
}

impl Constant {
    fn append(&self, to: &mut Builder) -> Result<()> {
        match (self, &mut to.values) {
            (Constant::Null, _) => {
                to.null();
                return Ok(());
            }
            (Constant::Bytes(value), _) => return to.binary(value),
            (Constant::Bool(value), Values::Bool(bits)) => bits.push(*value),
            (Constant::Int(value), Values::I32(values)) => values.push(i32::try_from(*value).map_err(|_| Refused)?),
            (Constant::Int(value), Values::I64(values)) => values.push(*value),
            (Constant::Float(value), Values::F32(values)) => values.push(*value as f32),
            (Constant::Float(value), Values::F64(values)) => values.push(*value),
            _ => return Err(Refused),
        }
        to.added();
        Ok(())
    }

    fn of(value: &Bound<'_, PyAny>, kind: &Type) -> PyResult<Self> {
        if value.is_none() {
            return Ok(Constant::Null);
        }
        Ok(match kind {
            Type::Bool if value.is_exact_instance_of::<PyBool>() => Constant::Bool(value.extract()?),
            Type::I32 | Type::I64 if value.is_exact_instance_of::<PyInt>() => Constant::Int(value.extract()?),
            Type::F32 | Type::F64 if value.is_exact_instance_of::<PyFloat>() => Constant::Float(value.extract()?),
            Type::String if value.is_exact_instance_of::<PyString>() => {
                Constant::Bytes(value.extract::<String>()?.into_bytes().into())
            }
            Type::Binary if value.is_exact_instance_of::<PyBytes>() => {
                Constant::Bytes(value.extract::<Vec<u8>>()?.into())
            }
            _ => return refused("a default is not plain"),
        })
    }
}

fn refused<T>(why: &str) -> PyResult<T> {
    Err(PyValueError::new_err(why.to_owned()))
}

/// Compiles a pair of schemas as rewritten by `serde_chain.stages.avro.resolution`.
struct Compiler<'py> {
    named: [Vec<(String, Bound<'py, PyAny>)>; 2],
    /// Types used twice are compiled twice.
    left: usize,
}

const WRITER: usize = 0;
const READER: usize = 1;

impl<'py> Compiler<'py> {
    /// The definition of a reference, which follows the definition.
    fn definition(&mut self, schema: &Bound<'py, PyAny>, side: usize) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(name) = schema.cast::<PyString>() {
            let name = name.to_cow()?;
            let known = self.named[side].iter().rev().find(|(other, _)| *other == name);
            return Ok(known.map_or_else(|| schema.clone(), |(_, definition)| definition.clone()));
        }
        if let Ok(dict) = schema.cast::<PyDict>()
            && let Some(name) = dict.get_item("name")?
        {
            self.named[side].push((name.extract()?, schema.clone()));
        }
        Ok(schema.clone())
    }

    fn plan(
        &mut self,
        writer: &Bound<'py, PyAny>,
        reader: &Bound<'py, PyAny>,
        to: &Type,
        level: usize,
    ) -> PyResult<Plan> {
        self.left = self.left.checked_sub(1).ok_or_else(|| PyValueError::new_err("it has too many fields"))?;
        if level > MOST_LEVELS {
            return refused("it nests too deeply, or is recursive");
        }
        let (writer, reader) = (self.definition(writer, WRITER)?, self.definition(reader, READER)?);
        if let Ok(branches) = writer.cast::<PyList>() {
            return self.union(branches, &reader, to, level);
        }
        let (which, other) = (kind(&writer)?, kind(&reader)?);
        // Types that resolve have the same name: the rewritten schemas say which do.
        if name_of(&writer)? != name_of(&reader)? {
            return refused("two types of different names do not match");
        }
        let target = reader.cast::<PyDict>().ok();
        let logical = match target {
            Some(dict) => dict.get_item("logicalType")?.map(|name| name.extract::<String>()).transpose()?,
            None => None,
        };
        Ok(match (which.as_str(), other.as_str(), to) {
            ("null", "null", _) => Plan::Null,
            ("boolean", "boolean", Type::Bool) => Plan::Boolean,
            ("int", "int", Type::I32 | Type::I64)
            | ("int", "long", Type::I64)
            | ("int", "float", Type::F32)
            | ("int", "double", Type::F64) => Plan::Int,
            ("long", "long", Type::I64) | ("long", "float", Type::F32) | ("long", "double", Type::F64) => Plan::Long,
            ("long", "long", Type::Millis) => Plan::Millis,
            ("float", "float", Type::F32 | Type::F64) | ("float", "double", Type::F64) => Plan::Float,
            ("double", "double", Type::F64) => Plan::Double,
            ("bytes", "bytes", Type::I128) | ("fixed", "fixed", Type::I128) => {
                let (Some(dict), Some("decimal")) = (target, logical.as_deref()) else {
                    return refused("a decimal is not one");
                };
                let size = if which == "fixed" { Some(size_of(writer.cast()?, dict)?) } else { None };
                Plan::Decimal(size, item(dict, "precision")?.extract()?)
            }
            ("bytes", "bytes", Type::Binary) if logical.is_none() => Plan::Bytes,
            ("string", "string", Type::String) | ("bytes", "string", Type::String) => Plan::String,
            ("string", "bytes", Type::Binary) if logical.is_none() => Plan::String,
            ("fixed", "fixed", Type::Binary) if logical.is_none() => {
                Plan::Fixed(size_of(writer.cast()?, reader.cast()?)?)
            }
            ("enum", "enum", Type::String) => Plan::Enum(symbols(writer.cast()?, reader.cast()?)?),
            ("array", "array", Type::List(inner)) => {
                let (own, its) = (item(writer.cast()?, "items")?, item(reader.cast()?, "items")?);
                Plan::Array(Box::new(self.plan(&own, &its, inner, level + 1)?))
            }
            ("map", "map", Type::Map(inner)) => {
                let (own, its) = (item(writer.cast()?, "values")?, item(reader.cast()?, "values")?);
                Plan::Map(Box::new(self.plan(&own, &its, inner, level + 1)?))
            }
            ("record", "record", Type::Struct(fields)) => self.record(writer.cast()?, reader.cast()?, fields, level)?,
            _ => return refused("a type is not supported"),
        })
    }

    fn union(
        &mut self,
        branches: &Bound<'py, PyList>,
        reader: &Bound<'py, PyAny>,
        to: &Type,
        level: usize,
    ) -> PyResult<Plan> {
        let readers: Vec<_> = match reader.cast::<PyList>() {
            Ok(list) => list.iter().collect(),
            Err(_) => vec![reader.clone()],
        };
        let mut plans = Vec::with_capacity(branches.len());
        for branch in branches {
            let definition = self.definition(&branch, WRITER)?;
            plans.push(match self.matching(&definition, &readers)? {
                Some(other) => self.plan(&definition, &other, to, level + 1)?,
                None => Plan::Unresolved,
            });
        }
        Ok(Plan::Union(plans))
    }

    /// The only branch of the reader for one of the writer: of the same type and name, else by promotion.
    fn matching(
        &mut self,
        branch: &Bound<'py, PyAny>,
        readers: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (which, own) = (kind(branch)?, name_of(branch)?);
        let mut matching: Vec<Bound<'py, PyAny>> = Vec::new();
        let mut promoted = Vec::new();
        for reader in readers {
            let definition = self.definition(reader, READER)?;
            let other = kind(&definition)?;
            if other == which && name_of(&definition)? == own {
                matching.push(definition);
            } else if is_promotion(&which, &other) {
                promoted.push(definition);
            }
        }
        let mut candidates = if matching.is_empty() { promoted } else { matching };
        match candidates.len() {
            0 => Ok(None),
            1 => Ok(candidates.pop()),
            _ => refused("a branch of a union matches several"),
        }
    }

    fn record(
        &mut self,
        writer: &Bound<'py, PyDict>,
        reader: &Bound<'py, PyDict>,
        fields: &[(String, Type)],
        level: usize,
    ) -> PyResult<Plan> {
        let targets = fields_of(reader)?;
        let mut steps = Vec::new();
        let mut absent: Vec<Option<Constant>> = fields.iter().map(|_| Some(Constant::Null)).collect();
        for (name, own) in fields_of(writer)? {
            let target = targets.iter().find(|(other, _)| *other == name);
            steps.push(match target {
                Some((_, field)) => {
                    let at = place(fields, &name)?;
                    if absent[at].take().is_none() {
                        return refused("a field occurs twice");
                    }
                    let (own, its) = (item(&own, "type")?, item(field, "type")?);
                    Step::Into(at, self.plan(&own, &its, &fields[at].1, level + 1)?)
                }
                None => Step::Skip(self.skipped(&item(&own, "type")?, level + 1)?),
            });
        }
        for (name, field) in &targets {
            let at = place(fields, name)?;
            if absent[at].is_some() {
                let Some(default) = field.get_item("default")? else { return refused("a field has no default") };
                absent[at] = Some(Constant::of(&default, &fields[at].1)?);
            }
        }
        let absent = absent.into_iter().enumerate().filter_map(|(at, constant)| Some((at, constant?))).collect();
        Ok(Plan::Record(steps, absent))
    }

    /// A type that is read and discarded.
    fn skipped(&mut self, schema: &Bound<'py, PyAny>, level: usize) -> PyResult<Plan> {
        self.left = self.left.checked_sub(1).ok_or_else(|| PyValueError::new_err("it has too many fields"))?;
        if level > MOST_LEVELS {
            return refused("it nests too deeply, or is recursive");
        }
        let schema = self.definition(schema, WRITER)?;
        if let Ok(branches) = schema.cast::<PyList>() {
            let plans: PyResult<Vec<_>> = branches.iter().map(|branch| self.skipped(&branch, level + 1)).collect();
            return Ok(Plan::Union(plans?));
        }
        Ok(match kind(&schema)?.as_str() {
            "null" => Plan::Null,
            "boolean" => Plan::Boolean,
            "int" | "long" => Plan::Long,
            "float" => Plan::Float,
            "double" => Plan::Double,
            "bytes" => Plan::Bytes,
            "string" => Plan::String,
            "fixed" => Plan::Fixed(item(schema.cast()?, "size")?.extract()?),
            "enum" => Plan::Enum(symbols(schema.cast()?, schema.cast()?)?),
            "array" => Plan::Array(Box::new(self.skipped(&item(schema.cast()?, "items")?, level + 1)?)),
            "map" => Plan::Map(Box::new(self.skipped(&item(schema.cast()?, "values")?, level + 1)?)),
            "record" => {
                let mut steps = Vec::new();
                for (_, field) in fields_of(schema.cast()?)? {
                    steps.push(Step::Skip(self.skipped(&item(&field, "type")?, level + 1)?));
                }
                Plan::Record(steps, Vec::new())
            }
            _ => return refused("a type is not supported"),
        })
    }
}

fn place(fields: &[(String, Type)], name: &str) -> PyResult<usize> {
    let mut places = fields.iter().enumerate().filter(|(_, (other, _))| other == name).map(|(at, _)| at);
    match (places.next(), places.next()) {
        (Some(at), None) => Ok(at),
        _ => refused("a field is not in the type, or twice"),
    }
}

fn item<'py>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    dict.get_item(key)?.ok_or_else(|| PyValueError::new_err("a definition is incomplete"))
}

fn kind(schema: &Bound<'_, PyAny>) -> PyResult<String> {
    if schema.is_instance_of::<PyList>() {
        return Ok("union".to_owned());
    }
    match schema.cast::<PyDict>() {
        Ok(dict) => item(dict, "type")?.extract(),
        Err(_) => schema.extract(),
    }
}

fn name_of(schema: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match schema.cast::<PyDict>() {
        Ok(dict) => dict.get_item("name")?.map(|name| name.extract()).transpose(),
        Err(_) => Ok(None),
    }
}

fn fields_of<'py>(record: &Bound<'py, PyDict>) -> PyResult<Vec<(String, Bound<'py, PyDict>)>> {
    let mut fields = Vec::new();
    for field in item(record, "fields")?.cast::<PyList>()? {
        let field = field.cast_into::<PyDict>()?;
        fields.push((item(&field, "name")?.extract()?, field));
    }
    Ok(fields)
}

/// The text of each symbol of the writer; None for those that the reader lacks, without a default.
fn symbols(writer: &Bound<'_, PyDict>, reader: &Bound<'_, PyDict>) -> PyResult<Vec<Option<Box<[u8]>>>> {
    let known: Vec<String> = item(reader, "symbols")?.extract()?;
    let default: Option<String> = reader.get_item("default")?.map(|default| default.extract()).transpose()?;
    let written: Vec<String> = item(writer, "symbols")?.extract()?;
    Ok(written
        .into_iter()
        .map(|symbol| if known.contains(&symbol) { Some(symbol) } else { default.clone().filter(|it| !it.is_empty()) })
        .map(|symbol| symbol.map(|text| text.into_bytes().into()))
        .collect())
}

/// Decodes records of one schema into an Arrow array.
#[pyclass(frozen, module = "serde_chain_native")]
pub struct ColumnDecoder {
    plan: Plan,
    kind: Type,
}

#[pymethods]
impl ColumnDecoder {
    /// Compile a pair of schemas.
    ///
    /// Args: the writer's and the reader's, both as rewritten for Arrow, the second None without resolution; the type
    /// of the column, and the type with timestamps in the written unit; and the maximum number of types.
    #[new]
    fn new(
        writer: &Bound<'_, PyAny>,
        reader: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyAny>,
        as_read: &Bound<'_, PyAny>,
        most: usize,
    ) -> PyResult<Self> {
        let mut compiler = Compiler { named: [Vec::new(), Vec::new()], left: most };
        let reader = if reader.is_none() { writer } else { reader };
        let layout = Type::of(kind, as_read, 0)?;
        let plan = compiler.plan(writer, reader, &layout, 0)?;
        Ok(Self { plan, kind: layout })
    }

    /// Decode a list of records; None is null.
    ///
    /// Args: the records, the length of their framing, and the bytes with which a record begins, if it is taken.
    ///
    /// Returns: a capsule with an `ArrowArray`, and the rows that are not taken.
    fn of_list<'py>(
        &self,
        py: Python<'py>,
        records: &Bound<'py, PyList>,
        start: usize,
        prefix: &[u8],
    ) -> PyResult<(Bound<'py, PyAny>, Vec<usize>)> {
        let mut building = Building::new(self, records.len());
        for record in records {
            match record.cast_exact::<PyBytes>() {
                Ok(data) => building.add(data.as_bytes(), start, prefix),
                Err(_) if record.is_none() => building.builder.null(),
                Err(_) => building.refuse(),
            }
        }
        building.finish(py)
    }

    /// Decode an array of records, without the interpreter.
    ///
    /// Args: the two capsules of an array of the type `binary` or `large_binary`; the others as above.
    fn of_array<'py>(
        &self,
        py: Python<'py>,
        schema: &Bound<'py, PyCapsule>,
        array: &Bound<'py, PyCapsule>,
        start: usize,
        prefix: &[u8],
    ) -> PyResult<(Bound<'py, PyAny>, Vec<usize>)> {
        let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<*const c_char>();
        let array = array.pointer_checked(Some(ARRAY))?.cast::<ArrowArray>();
        // SAFETY: the capsules own both, and are alive. A schema begins with its format.
        let format = unsafe { CStr::from_ptr(*schema.as_ptr()) };
        let is_large = match format.to_bytes() {
            b"z" => false,
            b"Z" => true,
            _ => return refused("it is not an array of bytes"),
        };
        let input = unsafe { Input::of(array.as_ptr(), is_large) };
        let mut building = Building::new(self, input.count);
        py.detach(|| {
            for row in 0..input.count {
                match input.get(row) {
                    Some(data) => building.add(data, start, prefix),
                    None => building.builder.null(),
                }
            }
        });
        building.finish(py)
    }
}

struct Building<'a> {
    plan: &'a Plan,
    builder: Builder,
    refused: Vec<usize>,
}

impl<'a> Building<'a> {
    fn new(decoder: &'a ColumnDecoder, rows: usize) -> Self {
        Self { plan: &decoder.plan, builder: Builder::new(&decoder.kind, rows), refused: Vec::new() }
    }

    fn add(&mut self, data: &[u8], start: usize, prefix: &[u8]) {
        let row = self.builder.len;
        let read = match data.get(start..) {
            Some(body) if data.starts_with(prefix) => {
                let mut cursor = Cursor::new(body);
                self.plan.read(&mut cursor, &mut self.builder).is_ok() && cursor.is_at_end()
            }
            _ => false,
        };
        if !read {
            self.builder.truncate(row);
            self.refuse();
        }
    }

    fn refuse(&mut self) {
        self.refused.push(self.builder.len);
        self.builder.null();
    }

    fn finish(self, py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Vec<usize>)> {
        Ok((capsule(py, self.builder.export())?, self.refused))
    }
}

/// An array of bytes of another library.
struct Input {
    count: usize,
    offset: usize,
    validity: *const u8,
    offsets: *const u8,
    data: *const u8,
    is_large: bool,
}

// SAFETY: Arrow arrays are immutable.
unsafe impl Send for Input {}
unsafe impl Sync for Input {}

impl Input {
    /// SAFETY: a valid array of the type `binary`, or of `large_binary`, that outlives this.
    unsafe fn of(array: *const ArrowArray, is_large: bool) -> Self {
        unsafe {
            let array = &*array;
            let buffers = std::slice::from_raw_parts(array.buffers, 3);
            let [validity, offsets, data] = [buffers[0], buffers[1], buffers[2]].map(<*const c_void>::cast::<u8>);
            let count = if offsets.is_null() { 0 } else { array.length as usize };
            Self { count, offset: array.offset as usize, validity, offsets, data, is_large }
        }
    }

    fn get(&self, row: usize) -> Option<&[u8]> {
        let at = self.offset + row;
        // SAFETY: `at` is within the array.
        unsafe {
            if !self.validity.is_null() && *self.validity.add(at / 8) >> (at % 8) & 1 == 0 {
                return None;
            }
            let [begin, end] = [at, at + 1].map(|at| {
                if self.is_large {
                    self.offsets.cast::<i64>().add(at).read_unaligned() as usize
                } else {
                    self.offsets.cast::<i32>().add(at).read_unaligned() as usize
                }
            });
            if begin == end {
                return Some(&[]); // the data may be null
            }
            Some(std::slice::from_raw_parts(self.data.add(begin), end - begin))
        }
    }
}

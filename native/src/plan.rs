//! Records into columns: a compiled `Plan` follows the bytes of the writer's schema, and appends to `Builder`s.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::builder::{Builder, Values, offset};
use crate::layout::Layout;
use crate::schema::refused;
use crate::wire::{Cursor, Refused, Result};

/// Up to this number, keys of a map are compared pair by pair.
const FEW_KEYS: usize = 16;

/// How the bytes of a writer's type are read into a builder.
pub enum Plan {
    Null,
    Boolean,
    /// With the smallest and the largest number: fastavro decides about others, which may have more than 32 bits.
    Int(i32, i32),
    Long(i64, i64),
    /// A `long` in milliseconds, into microseconds.
    Millis(i64, i64),
    Float,
    Double,
    Bytes,
    Fixed(usize),
    /// The precision of a decimal in `bytes`, or in so many bytes.
    Decimal(Option<usize>, u32),
    String,
    /// A string that has the form of a UUID.
    Uuid,
    Enum(Vec<Option<Box<[u8]>>>),
    Array(Box<Plan>),
    Map(Box<Plan>),
    Union(Vec<Plan>),
    Record(Vec<Step>, Vec<(usize, Constant)>),
    /// A branch that the reader's schema lacks.
    Unresolved,
}

pub enum Step {
    Into(usize, Plan),
    Skip(Plan),
}

/// The value of a field that the writer's schema lacks.
pub enum Constant {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Decimal(i128),
    Bytes(Box<[u8]>),
    List(Vec<Constant>),
    Map(Vec<(Box<[u8]>, Constant)>),
    Struct(Vec<Constant>),
}

/// Items for which memory is reserved together: a block may say that it has any number.
const ITEMS: u64 = 1024;

/// Read the blocks of an array or map in parts.
#[inline]
fn in_parts(cursor: &mut Cursor<'_>, mut read: impl FnMut(&mut Cursor<'_>, usize) -> Result<()>) -> Result<()> {
    loop {
        let mut left = cursor.block()?;
        if left == 0 {
            return Ok(());
        }
        while left > 0 {
            let count = left.min(ITEMS);
            read(cursor, count as usize)?;
            left -= count;
        }
    }
}

impl Plan {
    pub fn read(&self, cursor: &mut Cursor<'_>, to: &mut Builder) -> Result<()> {
        match self {
            Plan::Null => to.null(),
            Plan::Boolean => {
                let value = cursor.boolean()?;
                let Values::Bool(bits) = &mut to.values else { return Err(Refused) };
                bits.push(value);
                to.added();
            }
            Plan::Int(least, most) => {
                let value = i32::try_from(cursor.long()?).map_err(|_| Refused)?;
                if value < *least || value > *most {
                    return Err(Refused);
                }
                match &mut to.values {
                    Values::I32(values) => values.push(value),
                    Values::I64(values) => values.push(i64::from(value)),
                    Values::F32(values) => values.push(value as f32),
                    Values::F64(values) => values.push(f64::from(value)),
                    _ => return Err(Refused),
                }
                to.added();
            }
            Plan::Long(least, most) => {
                let value = within(cursor.long()?, *least, *most)?;
                match &mut to.values {
                    Values::I64(values) => values.push(value),
                    Values::F32(values) => values.push(value as f32),
                    Values::F64(values) => values.push(value as f64),
                    _ => return Err(Refused),
                }
                to.added();
            }
            Plan::Millis(least, most) => {
                let value = within(cursor.long()?, *least, *most)?.checked_mul(1000).ok_or(Refused)?;
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
            Plan::Uuid => to.binary(uuid(cursor.bytes()?)?)?,
            Plan::Enum(symbols) => {
                let symbol = &symbols[cursor.index(symbols.len())?];
                to.binary(symbol.as_ref().ok_or(Refused)?)?;
            }
            Plan::Array(item) => {
                let Values::List(offsets, items) = &mut to.values else { return Err(Refused) };
                in_parts(cursor, |cursor, count| {
                    items.reserve(count);
                    (0..count).try_for_each(|_| item.read(cursor, items))
                })?;
                offsets.push(offset(items.len)?);
                to.added();
            }
            Plan::Map(value) => {
                let Values::Map(offsets, entries) = &mut to.values else { return Err(Refused) };
                let [keys, values] = &mut **entries;
                let first = keys.len;
                in_parts(cursor, |cursor, count| {
                    keys.reserve(count);
                    values.reserve(count);
                    (0..count).try_for_each(|_| {
                        keys.binary(text(cursor)?)?;
                        value.read(cursor, values)
                    })
                })?;
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
            Plan::Int(..) | Plan::Long(..) | Plan::Millis(..) => _ = cursor.long()?,
            Plan::Float => _ = cursor.take(4)?,
            Plan::Double => _ = cursor.take(8)?,
            Plan::Bytes | Plan::Decimal(None, _) => _ = cursor.bytes()?,
            Plan::Fixed(size) | Plan::Decimal(Some(size), _) => _ = cursor.take(*size)?,
            Plan::String | Plan::Uuid => _ = text(cursor)?,
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
fn within(value: i64, least: i64, most: i64) -> Result<i64> {
    if least <= value && value <= most { Ok(value) } else { Err(Refused) }
}

/// The usual form; Python knows others.
fn uuid(text: &[u8]) -> Result<&[u8]> {
    let is_right = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    if text.len() == 36 && text.iter().enumerate().all(is_right) { Ok(text) } else { Err(Refused) }
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
    let Values::Binary(all) = &keys.values else { return true };
    let ends = &all.offsets[first..];
    let key = |at: usize| &all.data[ends[at] as usize..ends[at + 1] as usize];
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
            (Constant::Decimal(value), Values::I128(values)) => values.push(*value),
            (Constant::List(items), Values::List(offsets, inner)) => {
                items.iter().try_for_each(|item| item.append(inner))?;
                offsets.push(offset(inner.len)?);
            }
            (Constant::Map(entries), Values::Map(offsets, inner)) => {
                let [keys, items] = &mut **inner;
                for (key, value) in entries {
                    keys.binary(key)?;
                    value.append(items)?;
                }
                offsets.push(offset(keys.len)?);
            }
            (Constant::Struct(values), Values::Struct(fields)) => {
                values.iter().zip(fields).try_for_each(|(value, field)| value.append(field))?;
            }
            _ => return Err(Refused),
        }
        to.added();
        Ok(())
    }

    /// A value as `pyarrow.array` takes it for the type.
    pub fn of(value: &Bound<'_, PyAny>, kind: &Layout) -> PyResult<Self> {
        if value.is_none() {
            return Ok(Constant::Null);
        }
        Ok(match kind {
            Layout::Bool if value.is_exact_instance_of::<PyBool>() => Constant::Bool(value.extract()?),
            Layout::I32 | Layout::I64 if value.is_exact_instance_of::<PyInt>() => Constant::Int(value.extract()?),
            Layout::Millis if value.is_exact_instance_of::<PyInt>() => {
                match value.extract::<i64>()?.checked_mul(1000) {
                    Some(micros) => Constant::Int(micros),
                    None => return refused("a default is out of range"),
                }
            }
            Layout::F32 | Layout::F64 if value.is_exact_instance_of::<PyFloat>() => Constant::Float(value.extract()?),
            Layout::I128(scale) => Constant::Decimal(unscaled(value, *scale)?),
            Layout::String if value.is_exact_instance_of::<PyString>() => Constant::Bytes(bytes(value)?),
            Layout::Binary if value.is_exact_instance_of::<PyBytes>() => {
                Constant::Bytes(value.extract::<Vec<u8>>()?.into())
            }
            Layout::List(inner) => match value.cast_exact::<PyList>() {
                Ok(items) => Constant::List(items.iter().map(|item| Self::of(&item, inner)).collect::<PyResult<_>>()?),
                Err(_) => return refused("a default is not a list"),
            },
            Layout::Map(inner) => match value.cast_exact::<PyDict>() {
                Ok(items) => {
                    let entry = |(key, item): (Bound<'_, PyAny>, Bound<'_, PyAny>)| -> PyResult<_> {
                        Ok((bytes(&key)?, Self::of(&item, inner)?))
                    };
                    Constant::Map(items.iter().map(entry).collect::<PyResult<_>>()?)
                }
                Err(_) => return refused("a default is not a map"),
            },
            Layout::Struct(fields) => match value.cast_exact::<PyDict>() {
                Ok(items) => {
                    let field = |(name, kind): &(String, Layout)| match items.get_item(name)? {
                        Some(item) => Self::of(&item, kind),
                        None => Ok(Constant::Null), // of a union's members
                    };
                    Constant::Struct(fields.iter().map(field).collect::<PyResult<_>>()?)
                }
                Err(_) => return refused("a default is not a record"),
            },
            _ => return refused("a default is not plain"),
        })
    }
}

fn bytes(text: &Bound<'_, PyAny>) -> PyResult<Box<[u8]>> {
    Ok(text.extract::<String>()?.into_bytes().into())
}

/// The number of a `decimal.Decimal` with a scale.
fn unscaled(value: &Bound<'_, PyAny>, scale: i64) -> PyResult<i128> {
    let (sign, digits, exponent): (u8, Vec<u8>, i64) = value.call_method0("as_tuple")?.extract()?;
    let zeros = u32::try_from(exponent.saturating_add(scale)).ok();
    let magnitude = digits.iter().try_fold(0i128, |sum, digit| sum.checked_mul(10)?.checked_add(i128::from(*digit)));
    match zeros.and_then(|zeros| 10i128.checked_pow(zeros)).and_then(|power| magnitude?.checked_mul(power)) {
        Some(number) => Ok(if sign == 1 { -number } else { number }),
        None => refused("a default has more digits than its type"),
    }
}

//! Arrow arrays, value by value.
//!
//! What was appended last can be forgotten again: a record that is not taken leaves no trace.

use std::mem;

use crate::interface::{ArrowArray, Buffer, exported};
use crate::layout::Layout;
use crate::pool::{Item, give, reserved};
use crate::validity::{Bits, Validity};
use crate::wire::{Refused, Result};

/// Strings or bytes.
pub struct Binary {
    pub offsets: Vec<i32>,
    pub data: Vec<u8>,
    /// The number of bytes that is expected at most; 0 if it is unknown.
    most: usize,
}

impl Binary {
    #[inline]
    pub fn push(&mut self, value: &[u8]) -> Result<()> {
        let needed = self.data.len() + value.len();
        let end = offset(needed)?;
        if needed > self.data.capacity() {
            self.reserve(needed);
        }
        self.data.extend_from_slice(value);
        self.offsets.push(end);
        Ok(())
    }

    /// Reserve what all rows take if they are like those so far: growth would copy the values.
    #[cold]
    fn reserve(&mut self, needed: usize) {
        if needed <= self.most {
            let alike = needed.saturating_mul(self.offsets.capacity()) / self.offsets.len();
            let wanted = alike.saturating_add(alike / 32).max(needed + needed / 2).min(self.most);
            if let Some(mut larger) = reserved(wanted) {
                larger.extend_from_slice(&self.data);
                give(u8::wrap(mem::replace(&mut self.data, larger)));
                return;
            }
        }
        self.data.reserve(needed - self.data.len());
    }

    /// The buffers of an array.
    fn into_buffers(mut self) -> [Option<Buffer>; 2] {
        if self.data.len() < self.data.capacity() / 2 {
            self.data.shrink_to_fit();
        }
        [Some(Buffer::new(self.offsets)), Some(Buffer::new(self.data))]
    }
}

pub struct Builder {
    pub len: usize,
    validity: Validity,
    pub values: Values,
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
    Binary(Binary),
    List(Vec<i32>, Box<Builder>),
    Map(Vec<i32>, Box<[Builder; 2]>),
    Struct(Vec<Builder>),
}

/// An empty vector for so many values.
fn vector<T: Item>(count: usize) -> Vec<T> {
    reserved(count).unwrap_or_default()
}

/// Make room for more values: growth by the vector itself would not use memory of the pool.
#[inline]
fn make_room<T: Item + Copy>(values: &mut Vec<T>, more: usize) {
    if values.capacity() - values.len() < more {
        grow(values, more);
    }
}

#[cold]
fn grow<T: Item + Copy>(values: &mut Vec<T>, more: usize) {
    if let Some(mut larger) = reserved((2 * values.capacity()).max(values.len() + more)) {
        larger.extend_from_slice(values);
        give(T::wrap(mem::replace(values, larger)));
    }
}

#[inline]
pub fn offset(size: usize) -> Result<i32> {
    i32::try_from(size).map_err(|_| Refused)
}

impl Builder {
    /// Args: the layout; the number of values to come, 0 if it is unknown; and the number of bytes from which they are
    /// read, as a bound of what is reserved.
    pub fn new(kind: &Layout, rows: usize, bytes: usize) -> Self {
        let offsets = || {
            let mut offsets = vector(rows + 1);
            offsets.push(0);
            offsets
        };
        let values = match kind {
            Layout::Null => Values::Null,
            Layout::Bool => Values::Bool(Bits::default()),
            Layout::I32 => Values::I32(vector(rows)),
            Layout::I64 | Layout::Millis => Values::I64(vector(rows)),
            Layout::F32 => Values::F32(vector(rows)),
            Layout::F64 => Values::F64(vector(rows)),
            Layout::I128(_) => Values::I128(vector(rows)),
            Layout::Binary | Layout::String => {
                Values::Binary(Binary { offsets: offsets(), data: Vec::new(), most: bytes })
            }
            Layout::List(item) => Values::List(offsets(), Box::new(Builder::new(item, 0, bytes))),
            Layout::Map(value) => {
                let [keys, items] = [&Layout::String, value].map(|kind| Builder::new(kind, 0, bytes));
                Values::Map(offsets(), Box::new([keys, items]))
            }
            Layout::Struct(fields) => {
                Values::Struct(fields.iter().map(|(_, kind)| Builder::new(kind, rows, bytes)).collect())
            }
        };
        Self { len: 0, validity: Validity::default(), values }
    }

    #[inline]
    pub fn added(&mut self) {
        self.validity.valid();
        self.len += 1;
    }

    /// Make room for more values, whose number was unknown.
    pub fn reserve(&mut self, more: usize) {
        match &mut self.values {
            Values::Null | Values::Bool(_) => {}
            Values::I32(values) => make_room(values, more),
            Values::I64(values) => make_room(values, more),
            Values::F32(values) => make_room(values, more),
            Values::F64(values) => make_room(values, more),
            Values::I128(values) => make_room(values, more),
            Values::Binary(Binary { offsets, .. }) | Values::List(offsets, _) | Values::Map(offsets, _) => {
                make_room(offsets, more);
            }
            Values::Struct(fields) => fields.iter_mut().for_each(|field| field.reserve(more)),
        }
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
            Values::Binary(Binary { offsets, .. }) | Values::List(offsets, _) | Values::Map(offsets, _) => {
                offsets.push(offsets[offsets.len() - 1]);
            }
            Values::Struct(fields) => fields.iter_mut().for_each(Builder::empty),
        }
    }

    #[inline]
    pub fn binary(&mut self, value: &[u8]) -> Result<()> {
        let Values::Binary(values) = &mut self.values else { return Err(Refused) };
        values.push(value)?;
        self.added();
        Ok(())
    }

    /// Forget what was appended after the first `len` values.
    pub fn truncate(&mut self, len: usize) {
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
            Values::Binary(Binary { offsets, data, .. }) => {
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
            Values::Bool(bits) => leaf(validity, Buffer::new(bits.into_bytes())),
            Values::I32(values) => leaf(validity, Buffer::new(values)),
            Values::I64(values) => leaf(validity, Buffer::new(values)),
            Values::F32(values) => leaf(validity, Buffer::new(values)),
            Values::F64(values) => leaf(validity, Buffer::new(values)),
            Values::I128(values) => leaf(validity, Buffer::new(values)),
            Values::Binary(values) => exported(len, validity, values.into_buffers(), Vec::new()),
            Values::List(offsets, item) => {
                exported(len, validity, [Some(Buffer::new(offsets)), None], vec![item.export()])
            }
            Values::Map(offsets, entries) => {
                let [keys, items] = *entries;
                let children = vec![keys.export(), items.export()];
                let entries = exported(children[0].length as usize, Validity::default(), [None, None], children);
                exported(len, validity, [Some(Buffer::new(offsets)), None], vec![entries])
            }
            Values::Struct(fields) => {
                exported(len, validity, [None, None], fields.into_iter().map(Builder::export).collect())
            }
        }
    }
}

//! Avro's binary encoding: bytes and numbers, without Python.

/// The reader or writer does not take these bytes or this value; fastavro decides instead.
#[derive(Debug)]
pub struct Refused;

const QUIET: u32 = 1 << 22;

pub type Result<T> = std::result::Result<T, Refused>;

/// A position in the bytes of a record. No read passes the end.
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    #[inline]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8> {
        let (&first, rest) = self.rest.split_first().ok_or(Refused)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(size).ok_or(Refused)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (&taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Refused)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Other bytes than 0 and 1 are left to fastavro.
    #[inline]
    pub fn boolean(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Refused),
        }
    }

    /// An `int` or `long`.
    #[inline]
    pub fn long(&mut self) -> Result<i64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(from_zigzag(u64::from(first)));
        }
        let mut number = u64::from(first & 0x7F);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(Refused); // more than 64 bits
            }
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(from_zigzag(number));
            }
        }
        Err(Refused)
    }

    /// A NaN comes out quiet, as from fastavro, whose numbers have 64 bits.
    #[inline]
    pub fn float(&mut self) -> Result<f32> {
        Ok(quiet(f32::from_le_bytes(self.array()?)))
    }

    #[inline]
    pub fn double(&mut self) -> Result<f64> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    /// `bytes`, or the UTF-8 of a `string`.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let size = self.long()?;
        self.take(usize::try_from(size).map_err(|_| Refused)?)
    }

    /// An index below `count`: of a symbol, or of a union's branch.
    #[inline]
    pub fn index(&mut self, count: usize) -> Result<usize> {
        let index = usize::try_from(self.long()?).map_err(|_| Refused)?;
        if index < count { Ok(index) } else { Err(Refused) }
    }

    /// The number of items in the next block of an array or map, 0 at its end.
    #[inline]
    pub fn block(&mut self) -> Result<u64> {
        let count = self.long()?;
        if count < 0 {
            self.long()?; // the block's size, for readers that skip it
        }
        Ok(count.unsigned_abs())
    }

    /// The same for a reader that skips the items. Blocks with a size, which may be wrong, are left to fastavro.
    #[inline]
    pub fn block_to_skip(&mut self) -> Result<u64> {
        u64::try_from(self.long()?).map_err(|_| Refused)
    }
}

#[inline]
fn from_zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[inline]
pub fn quiet(value: f32) -> f32 {
    if value.is_nan() { f32::from_bits(value.to_bits() | QUIET) } else { value }
}

#[inline]
pub fn write_long(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[inline]
pub fn write_bytes(out: &mut Vec<u8>, data: &[u8]) {
    write_long(out, data.len() as i64);
    out.extend_from_slice(data);
}

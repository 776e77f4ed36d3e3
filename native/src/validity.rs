//! Bitmaps of Arrow arrays: the entries that are valid, and the values of booleans.

/// A bitmap, least significant bit first.
#[derive(Default)]
pub struct Bits {
    data: Vec<u8>,
    len: usize,
    unset: usize,
}

impl Bits {
    #[inline]
    pub fn push(&mut self, bit: bool) {
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

    pub fn into_bytes(self) -> Vec<u8> {
        self.data
    }

    pub fn truncate(&mut self, len: usize) {
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
    /// The bitmap, if there is a null, and the number of nulls.
    pub fn into_parts(self) -> (Option<Vec<u8>>, i64) {
        match self.0 {
            Some(bits) if bits.unset > 0 => (Some(bits.data), bits.unset as i64),
            _ => (None, 0),
        }
    }

    #[inline]
    pub fn valid(&mut self) {
        if let Some(bits) = &mut self.0 {
            bits.push(true);
        }
    }

    pub fn null(&mut self, len: usize) {
        let bits = self.0.get_or_insert_with(|| Bits { data: vec![0xFF; len / 8], len: len & !7, unset: 0 });
        while bits.len < len {
            bits.push(true);
        }
        bits.push(false);
    }

    pub fn truncate(&mut self, len: usize) {
        if let Some(bits) = &mut self.0 {
            bits.truncate(len);
        }
    }
}

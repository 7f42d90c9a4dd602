//! The metered visitor: charges strings as they arrive, and passes values that hold others on with a meter around them.

use alloc::borrow::ToOwned;
use core::fmt;
use core::mem::needs_drop;

use serde::de::{Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

use super::access::{MeteredElements, MeteredEnum};
use super::storage::Storage;
use super::{Holds, MeteredCodec, MeteredVisitor};
use crate::decode_budget::{Broken, Growth};

/// The size of the largest collection with contiguous elements: a deque. Hash tables are larger.
const LARGEST_VECTOR: usize = 4 * size_of::<usize>();

macro_rules! plain {
    ($($method:ident $value:ty,)*) => {$(
        #[inline]
        fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.visitor.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for MeteredVisitor<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    plain! {
        visit_bool bool, visit_char char,
        visit_i8 i8, visit_i16 i16, visit_i32 i32, visit_i64 i64, visit_i128 i128,
        visit_u8 u8, visit_u16 u16, visit_u32 u32, visit_u64 u64, visit_u128 u128,
        visit_f32 f32, visit_f64 f64,
    }

    #[inline]
    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.take_bytes(text.len())?;
        self.visitor.visit_str(text)
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        self.take_bytes(text.len())?;
        if self.holds == Holds::Owned {
            self.visitor.visit_string(text.to_owned())
        } else {
            self.visitor.visit_borrowed_str(text)
        }
    }

    #[inline]
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<V::Value, E> {
        self.take_bytes(bytes.len())?;
        self.visitor.visit_bytes(bytes)
    }

    #[inline]
    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<V::Value, E> {
        self.take_bytes(bytes.len())?;
        if self.holds == Holds::Owned {
            // The value may grow the buffer by a terminator.
            self.budget.allocate(1).map_err(Broken::into_error)?;
            self.visitor.visit_byte_buf(bytes.to_owned())
        } else {
            self.visitor.visit_borrowed_bytes(bytes)
        }
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.budget.allocate(usize::from(needs_drop::<V::Value>())).map_err(Broken::into_error)?;
        self.visitor.visit_none()
    }

    #[inline]
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, codec: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(MeteredCodec { codec, budget: self.budget, storage: Storage::inside::<V::Value>() })
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, codec: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(MeteredCodec {
            codec,
            budget: self.budget,
            storage: Storage::inside::<V::Value>(),
        })
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, codec: A) -> Result<V::Value, A::Error> {
        // Vectors and deques double, and are small themselves.
        let bulk_growth = if size_of::<V::Value>() <= LARGEST_VECTOR { Growth::Doubling } else { Growth::Each };
        self.visitor.visit_seq(MeteredElements::new(codec, self.budget, self.holds, bulk_growth))
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, codec: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(MeteredElements::new(codec, self.budget, self.holds, Growth::Each))
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, codec: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(MeteredEnum { codec, budget: self.budget })
    }
}

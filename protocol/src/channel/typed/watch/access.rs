//! What a codec gives for a value's parts, watched: elements are charged before they are decoded, and lengths hidden.

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::Watching;
use super::visitor::{Holds, fields, seed};
use crate::channel::typed::budget::{Broken, Budget, Element};

/// Decodes a part, watched.
pub(super) struct WatchedSeed<'b, S> {
    pub(super) seed: S,
    pub(super) budget: &'b Budget,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for WatchedSeed<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, codec: D) -> Result<S::Value, D::Error> {
        self.seed.deserialize(Watching { codec, budget: self.budget })
    }
}

/// Charges an element when the codec really has one.
struct ElementSeed<'b, 'f, S> {
    seed: S,
    budget: &'b Budget,
    element: Option<Element>,
    is_first: &'f mut bool,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for ElementSeed<'_, '_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, codec: D) -> Result<S::Value, D::Error> {
        if let Some(element) = self.element {
            self.budget.take_element(element, self.is_first).map_err(Broken::into_error)?;
        }
        seed(self.seed, self.budget).deserialize(codec)
    }
}

/// Elements of a sequence, entries of a map, or fields.
pub(super) struct WatchedElements<'b, A> {
    codec: A,
    budget: &'b Budget,
    holds: Holds,
    is_first: bool,
    /// Of the entry whose value comes next.
    key: Element,
}

impl<'b, A> WatchedElements<'b, A> {
    pub(super) const fn new(codec: A, budget: &'b Budget, holds: Holds) -> Self {
        Self { codec, budget, holds, is_first: true, key: Element::of::<()>() }
    }

    fn element(&self, element: Element) -> Option<Element> {
        (self.holds == Holds::Elements).then_some(element)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for WatchedElements<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let element = self.element(Element::of::<S::Value>());
        let (budget, is_first) = (self.budget, &mut self.is_first);
        self.codec.next_element_seed(ElementSeed { seed, budget, element, is_first })
    }

    /// What the message says of its own length is not to be believed: collections grow with what comes.
    fn size_hint(&self) -> Option<usize> {
        None
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WatchedElements<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, key: S) -> Result<Option<S::Value>, A::Error> {
        self.key = Element::of::<S::Value>();
        self.codec.next_key_seed(seed(key, self.budget))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let element = self.element(self.key.and(Element::of::<S::Value>()));
        let (budget, is_first) = (self.budget, &mut self.is_first);
        self.codec.next_value_seed(ElementSeed { seed, budget, element, is_first })
    }

    fn size_hint(&self) -> Option<usize> {
        None
    }
}

/// An enum, and then the variant that it is.
pub(super) struct WatchedEnum<'b, A> {
    pub(super) codec: A,
    pub(super) budget: &'b Budget,
}

impl<'de, 'b, A: EnumAccess<'de>> EnumAccess<'de> for WatchedEnum<'b, A> {
    type Error = A::Error;
    type Variant = WatchedEnum<'b, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, variant: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, codec) = self.codec.variant_seed(seed(variant, self.budget))?;
        Ok((value, WatchedEnum { codec, budget: self.budget }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for WatchedEnum<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.codec.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, value: S) -> Result<S::Value, A::Error> {
        self.codec.newtype_variant_seed(seed(value, self.budget))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.codec.tuple_variant(length, fields(visitor, self.budget))
    }

    fn struct_variant<V: Visitor<'de>>(self, names: &'static [&'static str], visitor: V) -> Result<V::Value, A::Error> {
        self.codec.struct_variant(names, fields(visitor, self.budget))
    }
}

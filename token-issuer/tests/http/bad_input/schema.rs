//! The OpenAPI document: what a schema accepts, and values around its limits.

use serde_json::{Map, Value, json};

/// The document that the service returns.
pub(super) struct Document(pub(super) Value);

impl Document {
    pub(super) fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/openapi.json");
        Self(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    /// Resolves a `$ref`. Other keys beside it are descriptions.
    pub(super) fn resolve<'a>(&'a self, node: &'a Value) -> &'a Value {
        let Some(reference) = node["$ref"].as_str() else { return node };
        let found = self.0.pointer(reference.strip_prefix('#').unwrap());
        found.unwrap_or_else(|| panic!("{reference} leads nowhere"))
    }

    /// Returns whether a schema accepts a value. Formats without a pattern accept any text.
    pub(super) fn accepts(&self, schema: &Value, value: &Value) -> bool {
        let schema = self.resolve(schema);
        if let Some(options) = schema["oneOf"].as_array() {
            return options.iter().any(|option| self.accepts(option, value));
        }
        let types = [&schema["type"]].into_iter().chain(schema["type"].as_array().into_iter().flatten());
        let is_of = |name: &Value| has_type(name.as_str().unwrap_or_default(), value);
        types.into_iter().any(is_of) && self.is_within(schema, value)
    }

    fn is_within(&self, schema: &Value, value: &Value) -> bool {
        let limit = |name: &str| schema[name].as_u64();
        let size = |size: usize, min: &str, max: &str| {
            limit(min).is_none_or(|min| size as u64 >= min) && limit(max).is_none_or(|max| size as u64 <= max)
        };
        match value {
            Value::Number(number) => {
                let number = number.as_u64();
                let above = |max| number.is_some_and(|number| number <= max);
                let below = |min| number.is_some_and(|number| number >= min);
                limit("minimum").is_none_or(below) && limit("maximum").is_none_or(above)
            }
            Value::String(text) => {
                size(text.chars().count(), "minLength", "maxLength")
                    && !schema["not"]["enum"].as_array().is_some_and(|excluded| excluded.contains(value))
                    && schema["pattern"].as_str().is_none_or(|pattern| matches_class(pattern, text))
            }
            Value::Array(entries) => {
                size(entries.len(), "minItems", "maxItems")
                    && entries.iter().all(|entry| self.accepts(&schema["items"], entry))
                    && (schema["uniqueItems"] != true
                        || !entries.iter().enumerate().any(|(index, entry)| entries[..index].contains(entry)))
            }
            _ => true,
        }
    }

    /// Returns values of all kinds, and values at and beyond the limits of a schema.
    pub(super) fn values(&self, schema: &Value, example: &Value) -> Vec<Value> {
        let mut values = vec![
            json!(null),
            json!(true),
            json!("."),
            json!(".."),
            json!(-1),
            json!(0),
            json!(1.5),
            json!(1e300),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(""),
            json!("\u{0}"),
            json!("\u{202e}é😀"),
            json!("../../etc/passwd"),
            json!("'; DROP TABLE servers; --"),
            json!("x".repeat(3000)),
            json!([]),
            json!([[]]),
            json!([null]),
            json!({}),
            json!({"$ref": "x"}),
        ];
        let schema = self.resolve(schema);
        let options: Vec<_> =
            schema["oneOf"].as_array().map_or_else(|| vec![schema], |options| options.iter().collect());
        for option in options {
            for limit in ["minimum", "maximum"].into_iter().filter_map(|name| option[name].as_u64()) {
                values.extend(
                    [limit.checked_sub(1), Some(limit), limit.checked_add(1)].into_iter().flatten().map(Value::from),
                );
            }
            for limit in ["minLength", "maxLength"].into_iter().filter_map(|name| option[name].as_u64()) {
                values.extend([limit, limit + 1].map(|length| json!("a".repeat(length as usize))));
            }
            if let Some(max) = option["maxItems"].as_u64() {
                let entry = example.get(0).cloned().unwrap_or_else(|| json!("7"));
                values.extend([max, max + 1].map(|count| json!(vec![entry.clone(); count as usize])));
            }
        }
        values
    }
}

fn has_type(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// Returns whether each character of a text is of a class, as `^[A-Za-z0-9._-]+$`.
fn matches_class(pattern: &str, text: &str) -> bool {
    let class: Vec<char> =
        pattern.strip_prefix("^[").and_then(|rest| rest.strip_suffix("]+$")).unwrap().chars().collect();
    let is_in = |character: char| {
        let mut index = 0;
        while let Some(first) = class.get(index) {
            let last = class.get(index + 2).filter(|_| class.get(index + 1) == Some(&'-'));
            if last.map_or(character == *first, |last| (*first..=*last).contains(&character)) {
                return true;
            }
            index += if last.is_some() { 3 } else { 1 };
        }
        false
    };
    !text.is_empty() && text.chars().all(is_in)
}

/// Returns an object with another value of a field.
pub(super) fn with(object: &Map<String, Value>, field: &str, value: &Value) -> String {
    let mut object = object.clone();
    object.insert(field.to_owned(), value.clone());
    Value::Object(object).to_string()
}

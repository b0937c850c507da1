//! The form of a report.

use serde_json::Value;

/// Panics unless a value has a form: an object has just these names, all elements of an array have the form of the one that
/// is given, and of anything else the type counts.
pub fn assert_form(value: &Value, form: &Value, place: &str) {
    match (value, form) {
        (Value::Object(fields), Value::Object(forms)) => {
            let [found, expected] = [fields, forms].map(|map| map.keys().collect::<Vec<_>>());
            assert_eq!(found, expected, "the names of {place}");
            for (name, field) in fields {
                assert_form(field, &forms[name], &format!("{place}.{name}"));
            }
        }
        (Value::Array(elements), Value::Array(forms)) => {
            elements.iter().for_each(|element| assert_form(element, &forms[0], &format!("{place}[]")));
        }
        (Value::Number(found), Value::Number(expected)) => {
            assert!(found.is_u64() || !expected.is_u64(), "{place}: expected a whole number, found {found}");
        }
        (value, form) => {
            let same = std::mem::discriminant(value) == std::mem::discriminant(form);
            assert!(same, "{place}: expected something like {form}, found {value}");
        }
    }
}

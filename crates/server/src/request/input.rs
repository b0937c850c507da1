//! What texts come as: one or a list of them, as strings or as numbers of tokens.

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use std::{borrow::Cow, fmt};

/// Items of a list (a guess: far above what any server takes at once).
pub const ITEM_COUNT_MAX: usize = 1 << 16;

/// A text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// As a string.
    Text(Cow<'a, str>),
    /// As numbers of tokens.
    Tokens(Vec<u32>),
}

/// One text or a list of them. A list of numbers is one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs<'a> {
    /// The texts.
    pub items: Vec<Input<'a>>,
    /// Did they come as a list?
    pub is_list: bool,
}

impl Inputs<'_> {
    /// If all are strings: these.
    pub fn texts(&self) -> Option<Vec<&str>> {
        self.items.iter().map(Input::text).collect()
    }
}

impl Input<'_> {
    /// If it is a string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Input::Text(text) => Some(text),
            Input::Tokens(_) => None,
        }
    }
}

/// One item of a list, which may be a number.
enum Item<'a> {
    Input(Input<'a>),
    Token(u32),
}

struct InputsVisitor;
struct ItemVisitor;

const EXPECTED: &str = "a string, a list of strings, a list of token numbers, or a list of these";

/// How the error about a list that is too long begins.
pub const TOO_MANY: &str = "a list is too long";

fn token<E: Error>(number: u64) -> Result<u32, E> {
    u32::try_from(number).map_err(|_| E::custom(format!("a token number is too large, {number}")))
}

/// Pushes, unless the list is as long as a list may be.
fn push<T, E: Error>(list: &mut Vec<T>, item: T) -> Result<(), E> {
    if list.len() >= ITEM_COUNT_MAX {
        return Err(E::custom(format!("{TOO_MANY}, expected at most {ITEM_COUNT_MAX} items")));
    }
    list.push(item);
    Ok(())
}

impl<'de: 'a, 'a> Deserialize<'de> for Inputs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Inputs<'a>, D::Error> {
        deserializer.deserialize_any(InputsVisitor)
    }
}

impl<'de> Visitor<'de> for InputsVisitor {
    type Value = Inputs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Inputs<'de>, E> {
        Ok(Inputs { items: vec![Input::Text(Cow::Borrowed(text))], is_list: false })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Inputs<'de>, E> {
        Ok(Inputs { items: vec![Input::Text(Cow::Owned(text.into()))], is_list: false })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Inputs<'de>, A::Error> {
        let (mut items, mut tokens) = (Vec::new(), Vec::new());
        while let Some(item) = list.next_element::<Item<'de>>()? {
            match item {
                Item::Input(item) => push(&mut items, item)?,
                Item::Token(token) => push(&mut tokens, token)?,
            }
        }
        match (items.is_empty(), tokens.is_empty()) {
            (false, false) => {
                Err(A::Error::custom(format!("token numbers beside texts, expected {EXPECTED}")))
            }
            (true, false) => Ok(Inputs { items: vec![Input::Tokens(tokens)], is_list: false }),
            _ => Ok(Inputs { items, is_list: true }),
        }
    }
}

impl<'de> Deserialize<'de> for Item<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Item<'de>, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a token number or a list of token numbers")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Item<'de>, E> {
        Ok(Item::Input(Input::Text(Cow::Borrowed(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Item<'de>, E> {
        Ok(Item::Input(Input::Text(Cow::Owned(text.into()))))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Item<'de>, E> {
        token(number).map(Item::Token)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Item<'de>, A::Error> {
        let mut tokens = Vec::new();
        while let Some(Token(token)) = list.next_element()? {
            push(&mut tokens, token)?;
        }
        Ok(Item::Input(Input::Tokens(tokens)))
    }
}

/// A number in a list of them.
struct Token(u32);
struct TokenVisitor;

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        deserializer.deserialize_u64(TokenVisitor)
    }
}

impl Visitor<'_> for TokenVisitor {
    type Value = Token;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token number")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Token, E> {
        token(number).map(Token)
    }
}

/// Texts, each a string or an object with a `text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts<'a>(pub Vec<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Texts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts<'a>, D::Error> {
        struct Text<'a>(Cow<'a, str>);
        struct TextVisitor;
        struct TextsVisitor;

        impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
                deserializer.deserialize_any(TextVisitor)
            }
        }

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or an object with a text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.into())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text<'de>, A::Error> {
                #[derive(Deserialize)]
                struct Document<'a> {
                    #[serde(borrow)]
                    text: Cow<'a, str>,
                }
                Document::deserialize(MapAccessDeserializer::new(map)).map(|document| Text(document.text))
            }
        }

        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of strings, or of objects with a text")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts<'de>, A::Error> {
                let mut texts = Vec::new();
                while let Some(Text(text)) = list.next_element()? {
                    push(&mut texts, text)?;
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_any(TextsVisitor)
    }
}

/// One text, or the first of a pair and the second.
type Sequence<'a> = (Cow<'a, str>, Option<Cow<'a, str>>);

/// One text (a string, or a list of it), one pair (a list of two strings), or a list of these, each of which is a list then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequences<'a> {
    /// The texts and pairs.
    pub items: Vec<Sequence<'a>>,
    /// Did they come as a list?
    pub is_list: bool,
}

const EXPECTED_SEQUENCES: &str =
    "a string, a pair of strings, or a list of lists that hold one string or a pair of them";

impl<'de: 'a, 'a> Deserialize<'de> for Sequences<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sequences<'a>, D::Error> {
        struct SequencesVisitor;

        impl<'de> Visitor<'de> for SequencesVisitor {
            type Value = Sequences<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED_SEQUENCES)
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Sequences<'de>, E> {
                Ok(Sequences { items: vec![(Cow::Borrowed(text), None)], is_list: false })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Sequences<'de>, E> {
                Ok(Sequences { items: vec![(Cow::Owned(text.into()), None)], is_list: false })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Sequences<'de>, A::Error> {
                let (mut items, mut strings) = (Vec::new(), Vec::new());
                while let Some(Part(texts, is_list)) = list.next_element()? {
                    if is_list {
                        push(&mut items, sequence(texts)?)?;
                    } else {
                        strings.extend(texts);
                    }
                    if strings.len() > 2 || !strings.is_empty() && !items.is_empty() {
                        return Err(A::Error::custom(format!("expected {EXPECTED_SEQUENCES}")));
                    }
                }
                match strings.is_empty() {
                    true => Ok(Sequences { items, is_list: true }),
                    false => Ok(Sequences { items: vec![sequence(strings)?], is_list: false }),
                }
            }
        }

        deserializer.deserialize_any(SequencesVisitor)
    }
}

fn sequence<'a, E: Error>(texts: Vec<Cow<'a, str>>) -> Result<Sequence<'a>, E> {
    let count = texts.len();
    let mut texts = texts.into_iter();
    match (count, texts.next(), texts.next()) {
        (1 | 2, Some(first), second) => Ok((first, second)),
        _ => Err(E::custom(format!("a list of {count} strings, expected {EXPECTED_SEQUENCES}"))),
    }
}

/// A string, or a list of at most three: no sequence has more than two. And whether it is a list.
struct Part<'a>(Vec<Cow<'a, str>>, bool);

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Part<'a>, D::Error> {
        struct PartVisitor;

        impl<'de> Visitor<'de> for PartVisitor {
            type Value = Part<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or a list of one string or a pair of them")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Part<'de>, E> {
                Ok(Part(vec![Cow::Borrowed(text)], false))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Part<'de>, E> {
                Ok(Part(vec![Cow::Owned(text.into())], false))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Part<'de>, A::Error> {
                let mut texts = Vec::new();
                while let Some(Part(text, is_list)) = list.next_element()? {
                    if is_list || texts.len() > 1 {
                        return Err(A::Error::custom(format!("expected {EXPECTED_SEQUENCES}")));
                    }
                    texts.extend(text);
                }
                Ok(Part(texts, true))
            }
        }

        deserializer.deserialize_any(PartVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn documents_are_strings_or_have_a_text() {
        let texts = |texts: &[&'static str]| Ok(Texts(texts.iter().map(|text| (*text).into()).collect()));
        assert_eq!(read(r#"["a", {"text": "b", "title": 7}, {"text": "\u00e9"}]"#), texts(&["a", "b", "é"]));
        assert_eq!(read("[]"), texts(&[]));
        for (json, reason) in [
            ("\"a\"", "invalid type: string \"a\", expected a list of strings, or of objects with a text"),
            ("[7]", "invalid type: integer `7`, expected a string, or an object with a text"),
            ("[{}]", "missing field `text`"),
            ("[[\"a\"]]", "invalid type: sequence, expected a string"),
        ] {
            let error = read::<Texts<'_>>(json).unwrap_err();
            assert!(error.starts_with(reason), "{json}: {error}");
        }
    }

    #[test]
    fn sequences_are_texts_and_pairs() {
        let one = |text: &'static str| (Cow::from(text), None);
        let pair = |first: &'static str, second: &'static str| (Cow::from(first), Some(Cow::from(second)));
        let expected = |items: Vec<Sequence<'static>>, is_list| Ok(Sequences { items, is_list });
        assert_eq!(read(r#""a""#), expected(vec![one("a")], false));
        assert_eq!(read(r#"["a"]"#), expected(vec![one("a")], false));
        assert_eq!(read(r#"["a", "\u00e9"]"#), expected(vec![pair("a", "é")], false));
        assert_eq!(read(r#"[["a"], ["a", "b"]]"#), expected(vec![one("a"), pair("a", "b")], true));
        assert_eq!(read("[]"), expected(vec![], true));
        for json in [
            r#"["a", "b", "c"]"#,
            r#"["a", ["b"]]"#,
            r#"[["a"], "b"]"#,
            "[[]]",
            r#"[["a", "b", "c"]]"#,
            r#"[[["a"]]]"#,
            "7",
            "[7]",
            "{}",
        ] {
            let error = read::<Sequences<'_>>(json).unwrap_err();
            assert!(error.contains("expected"), "{json}: {error}");
        }
        let long = |count: usize| format!("[{}[\"\"]]", "[\"\"],".repeat(count - 1));
        assert_eq!(read::<Sequences<'_>>(&long(ITEM_COUNT_MAX)).unwrap().items.len(), ITEM_COUNT_MAX);
        assert!(
            read::<Sequences<'_>>(&long(ITEM_COUNT_MAX + 1)).unwrap_err().starts_with("a list is too long")
        );
    }

    #[test]
    fn all_forms_are_read() {
        let text = |text: &'static str| Input::Text(text.into());
        let expected = |items, is_list| Ok(Inputs { items, is_list });
        assert_eq!(read("\"a\""), expected(vec![text("a")], false));
        assert_eq!(read("\"\\u00e9\""), expected(vec![text("é")], false));
        assert_eq!(read("[\"a\", \"\"]"), expected(vec![text("a"), text("")], true));
        assert_eq!(read("[1, 2]"), expected(vec![Input::Tokens(vec![1, 2])], false));
        let lists = vec![Input::Tokens(vec![1]), Input::Tokens(vec![]), text("b")];
        assert_eq!(read("[[1], [], \"b\"]"), expected(lists, true));
        assert_eq!(read("[]"), expected(vec![], true));
    }

    #[test]
    fn anything_else_is_refused() {
        for (json, reason) in [
            ("[1, \"a\"]", "token numbers beside texts"),
            ("[4294967296]", "a token number is too large, 4294967296"),
            ("[-1]", "invalid type: integer `-1`, expected a string, a token number"),
            ("[1.5]", "invalid type: floating point `1.5`"),
            ("[[[1]]]", "invalid type: sequence, expected a token number"),
            ("[[\"a\"]]", "invalid type: string \"a\", expected a token number"),
            ("{}", "invalid type: map, expected a string, a list of strings"),
            ("null", "invalid type: null"),
        ] {
            let error = read::<Inputs<'_>>(json).unwrap_err();
            assert!(error.starts_with(reason), "{json}: {error}");
        }
        let long = |count: usize| format!("[{}\"\"]", "\"\",".repeat(count - 1));
        assert_eq!(read::<Inputs<'_>>(&long(ITEM_COUNT_MAX)).unwrap().items.len(), ITEM_COUNT_MAX);
        assert!(read::<Inputs<'_>>(&long(ITEM_COUNT_MAX + 1)).unwrap_err().starts_with("a list is too long"));
    }
}

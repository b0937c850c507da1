//! The UCI handwritten digits: 1797 images of 8 × 8, values 0 to 16, and a label. See `data/README.md`.

use crate::output::{Failure, Outcome};
use flate2::read::MultiGzDecoder;
use raddle::{Device, Tensor};
use std::{io::Read, path::Path};

/// The file that ships with the repository.
const BUILT_IN: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// Pixels of an image.
pub const PIXEL_COUNT: usize = 64;
const VALUE_MAX: f32 = 16.0;
const LABEL_MAX: u8 = 9;
/// A table that unpacks to more than this isn't the digits.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Images, one after another, scaled to 0 … 1.
pub struct Digits {
    pub pixels: Vec<f32>,
    pub image_count: usize,
}

impl Digits {
    /// One image a row, on a device.
    pub fn to(&self, device: &Device) -> raddle::Result<Tensor> {
        Tensor::from_slice(&self.pixels, [self.image_count, PIXEL_COUNT], device)
    }
}

/// Reads a gzipped table of 64 pixels and a label a line, of so many images at least; without a path the one that is built in.
pub fn load(path: Option<&Path>, image_count_min: usize) -> Outcome<Digits> {
    let name = path.map_or("digits.csv.gz (built in)".into(), |path| path.display().to_string());
    let input = |text: String| Failure::Input(format!("{name}: {text}"));
    let bytes = match path {
        Some(path) => std::fs::read(path).map_err(|error| input(error.to_string()))?,
        None => BUILT_IN.to_vec(),
    };
    let mut text = String::new();
    MultiGzDecoder::new(&bytes[..])
        .take(TEXT_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| input(format!("not a gzipped text, {error}")))?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err(input(format!("expected at most {TEXT_BYTES_MAX} bytes of text, found more")));
    }
    let digits = parse(&text).map_err(input)?;
    if digits.image_count < image_count_min {
        return Err(input(format!(
            "expected at least {image_count_min} images, found {}",
            digits.image_count
        )));
    }
    Ok(digits)
}

fn parse(text: &str) -> Result<Digits, String> {
    let mut pixels = Vec::new();
    let mut image_count = 0;
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line_number = index + 1;
        let fields: Vec<&str> = line.split(',').collect();
        if fields.len() != PIXEL_COUNT + 1 {
            return Err(format!(
                "line {line_number}: expected {PIXEL_COUNT} pixels and a label, found {} fields",
                fields.len()
            ));
        }
        for (column, field) in fields[..PIXEL_COUNT].iter().enumerate() {
            match field.trim().parse::<f32>() {
                Ok(value) if (0.0..=VALUE_MAX).contains(&value) => pixels.push(value / VALUE_MAX),
                _ => {
                    return Err(format!(
                        "line {line_number}, column {}: expected a number from 0 to {VALUE_MAX}, found {field:?}",
                        column + 1
                    ));
                }
            }
        }
        let label = fields[PIXEL_COUNT].trim();
        if !matches!(label.parse::<u8>(), Ok(0..=LABEL_MAX)) {
            let column = PIXEL_COUNT + 1;
            return Err(format!(
                "line {line_number}, column {column}: expected a label from 0 to {LABEL_MAX}, found {label:?}"
            ));
        }
        image_count += 1;
    }
    if image_count == 0 {
        return Err("expected images, found none".into());
    }
    Ok(Digits { pixels, image_count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_whole() {
        let digits = load(None, 1797).unwrap();
        assert_eq!((digits.image_count, digits.pixels.len()), (1797, 1797 * 64));
        assert_eq!(digits.pixels[..8], [0.0, 0.0, 5.0, 13.0, 9.0, 1.0, 0.0, 0.0].map(|value| value / 16.0));
    }

    #[test]
    fn a_table_that_is_too_large_is_refused() {
        use std::io::Write;
        let path = std::env::temp_dir().join(format!("raddle-{}-digits.csv.gz", std::process::id()));
        let mut encoder =
            flate2::write::GzEncoder::new(std::fs::File::create(&path).unwrap(), Default::default());
        let line = format!("{}\n", vec!["1"; 65].join(","));
        let count = TEXT_BYTES_MAX as usize / line.len() + 1;
        encoder.write_all(line.repeat(count).as_bytes()).unwrap();
        encoder.finish().unwrap();
        let error = load(Some(&path), 1).err().unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(
            matches!(error, Failure::Input(text) if text.ends_with("expected at most 16777216 bytes of text, found more"))
        );
    }

    /// What gzip writes when files are joined, and one that is followed by something else.
    #[test]
    fn all_members_of_a_file_are_read() {
        use std::io::Write;
        let member = |text: &str| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let line = format!("{}\n", vec!["1"; 65].join(","));
        let path = std::env::temp_dir().join(format!("raddle-{}-members.csv.gz", std::process::id()));
        let load_of = |bytes: Vec<u8>| {
            std::fs::write(&path, bytes).unwrap();
            load(Some(&path), 3)
        };
        let refused = |bytes: Vec<u8>| match load_of(bytes) {
            Err(Failure::Input(text)) => {
                text.strip_prefix(&format!("{}: ", path.display())).unwrap().to_string()
            }
            other => panic!("{:?}", other.map(|digits| digits.image_count)),
        };
        let (one, two) = (member(&line), member(&line.repeat(2)));
        assert_eq!(load_of([&one[..], &two].concat()).unwrap().image_count, 3);
        assert_eq!(refused(two.clone()), "expected at least 3 images, found 2");
        assert_eq!(
            refused([&one[..], &two, b"more than the head of a member"].concat()),
            "not a gzipped text, invalid gzip header"
        );
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_broken_table_names_the_place() {
        let with = |column: usize, field: &str| {
            let mut fields = vec!["1"; 65];
            fields[column] = field;
            fields.join(",")
        };
        let row = |field: &str| with(9, field);
        for label in ["10", "-1", "1.5", "x", ""] {
            assert_eq!(
                parse(&format!("{}\n{}", row("3"), with(64, label))).err().unwrap(),
                format!("line 2, column 65: expected a label from 0 to 9, found {label:?}")
            );
        }
        let error = |text: &str| parse(text).err().unwrap();
        assert_eq!(
            error(&format!("{}\n{}", row("3"), row("x"))),
            "line 2, column 10: expected a number from 0 to 16, found \"x\""
        );
        assert!(error(&row("NaN")).contains("line 1, column 10"));
        assert_eq!(error("1,2"), "line 1: expected 64 pixels and a label, found 2 fields");
        assert_eq!(error("\n"), "expected images, found none");
    }
}

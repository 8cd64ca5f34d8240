//! Files of JSON that MACO writes and reads again: what is wrong with one, and where.
//!
//! What is in them does not belong here.

mod error;

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use error::FileError;
pub(crate) use error::{COSTS, TRACE, TUNING};

/// Whole numbers beyond which nanoseconds are no longer exact.
const MOST: f64 = (1u64 << 53) as f64;

/// The file as JSON.
pub(crate) fn json(code: &'static str, path: &Path, help: &'static str) -> Result<Value, FileError> {
    parsed(code, path, help, &text(code, path)?)
}

/// What the file says.
pub(crate) fn text(code: &'static str, path: &Path) -> Result<Vec<u8>, FileError> {
    std::fs::read(path).map_err(|source| FileError::Io { code, path: path.into(), action: "read", source })
}

/// `text`, of the file, as JSON.
pub(crate) fn parsed(code: &'static str, path: &Path, help: &'static str, text: &[u8]) -> Result<Value, FileError> {
    serde_json::from_slice(text).map_err(|error| FileError::Json { code, path: path.into(), why: error.to_string().into(), help })
}

/// `text`, of the file, as a value of the type: errors name line and field.
pub(crate) fn typed<T: DeserializeOwned>(code: &'static str, path: &Path, help: &'static str, text: &[u8]) -> Result<T, FileError> {
    serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(text)).map_err(|error| {
        let (field, error) = (error.path().to_string().into(), error.into_inner());
        let (line, why) = (error.line(), error.to_string());
        let why = why.strip_suffix(&format!(" at line {line} column {}", error.column())).unwrap_or(&why).into();
        FileError::Line { code, path: path.into(), line, field, why, help }
    })
}

/// Whose errors these are.
pub(crate) struct Reader<'a> {
    pub(crate) code: &'static str,
    pub(crate) path: &'a Path,
    pub(crate) help: &'static str,
}

impl Reader<'_> {
    pub(crate) fn field(&self, location: &str, field: &str, expected: impl Into<Box<str>>, found: Option<&Value>) -> FileError {
        FileError::Field {
            code: self.code,
            path: self.path.into(),
            location: location.into(),
            field: field.into(),
            expected: expected.into(),
            found: found.map_or_else(|| "nothing".to_owned(), brief).into(),
            help: self.help,
        }
    }
}

/// A value on one short line.
fn brief(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= MOST { text } else { format!("{}…", text.chars().take(MOST).collect::<String>()) }
}

/// An object of the file, and where it lies.
pub(crate) struct At<'a> {
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) location: String,
    pub(crate) object: &'a Map<String, Value>,
}

impl<'a> At<'a> {
    pub(crate) fn wrong(&self, field: &str, expected: impl Into<Box<str>>) -> FileError {
        self.reader.field(&self.location, field, expected, self.object.get(field))
    }

    pub(crate) fn version(&self, expected: u64) -> Result<(), FileError> {
        match self.whole("version")? {
            found if found == expected => Ok(()),
            found => Err(FileError::Version {
                code: self.reader.code,
                path: self.reader.path.into(),
                found,
                expected,
                help: "read it with the version of MACO that wrote it, or write it again",
            }),
        }
    }

    pub(crate) fn text(&self, field: &str) -> Result<&'a str, FileError> {
        self.object.get(field).and_then(Value::as_str).ok_or_else(|| self.wrong(field, "a text"))
    }

    pub(crate) fn whole(&self, field: &str) -> Result<u64, FileError> {
        self.object.get(field).and_then(Value::as_u64).ok_or_else(|| self.wrong(field, "a whole number"))
    }

    /// A whole number below `end`.
    pub(crate) fn below(&self, field: &str, end: u64, what: &str) -> Result<u32, FileError> {
        let value = self.object.get(field).and_then(Value::as_u64).filter(|&value| value < end).and_then(|value| u32::try_from(value).ok());
        value.ok_or_else(|| self.wrong(field, format!("{what} below {end}")))
    }

    pub(crate) fn positive(&self, field: &str) -> Result<f64, FileError> {
        let value = self.object.get(field).and_then(Value::as_f64).filter(|&value| value > 0.0 && value.is_finite());
        value.ok_or_else(|| self.wrong(field, "a number above 0"))
    }

    /// Microseconds, as nanoseconds.
    pub(crate) fn micro(&self, field: &str) -> Result<u64, FileError> {
        let value = self.object.get(field).and_then(Value::as_f64).map(|value| (value * 1e3).round());
        let value = value.filter(|value| (0.0..MOST).contains(value));
        value.map(|value| value as u64).ok_or_else(|| self.wrong(field, "microseconds, 0 or more"))
    }

    /// Whole numbers below `end`.
    pub(crate) fn numbers(&self, field: &str, end: u64) -> Result<Vec<u32>, FileError> {
        let expected = || format!("whole numbers below {end}");
        let array = self.object.get(field).and_then(Value::as_array).ok_or_else(|| self.wrong(field, expected()))?;
        let number = |(index, value): (usize, &Value)| {
            let number = value.as_u64().filter(|&value| value < end).and_then(|value| u32::try_from(value).ok());
            number.ok_or_else(|| self.reader.field(&self.location, &format!("{field}[{index}]"), expected(), Some(value)))
        };
        array.iter().enumerate().map(number).collect()
    }

    /// An array of objects, each as `read` reads it.
    pub(crate) fn all<T>(&self, field: &str, read: impl Fn(At<'_>) -> Result<T, FileError>) -> Result<Vec<T>, FileError> {
        let array = self.object.get(field).and_then(Value::as_array).ok_or_else(|| self.wrong(field, "an array of objects"))?;
        let one = |(index, value): (usize, &Value)| {
            let location = format!("{}.{field}[{index}]", self.location);
            let object = value.as_object().ok_or_else(|| self.reader.field(&location, "", "an object", Some(value)))?;
            read(At { reader: self.reader, location, object })
        };
        array.iter().enumerate().map(one).collect()
    }
}

/// Writes `value` as JSON, with a line end.
pub(crate) fn write(code: &'static str, path: &Path, value: &impl Serialize) -> Result<(), FileError> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from);
    let written = text.and_then(|text| std::fs::write(path, text + "\n"));
    written.map_err(|source| FileError::Io { code, path: path.into(), action: "written", source })
}

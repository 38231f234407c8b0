//! Saves the parts of a result that are not text.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use data_encoding::{DecodeError, DecodeKind, Specification};

/// The folder of `call --save`. Existing files are never overwritten.
pub(super) struct Folder {
    path: PathBuf,
    next: u32,
}

impl Folder {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), next: 1 }
    }

    /// Decodes `data` from base64 into a new file, named after `kind` and a number, so that the server cannot choose the name.
    ///
    /// # Errors
    /// A description of what is wrong with `data`, or with the folder.
    pub(super) fn save(&mut self, kind: &str, data: &str, mime_type: &str) -> Result<PathBuf, String> {
        let bytes = decode(data)?;
        loop {
            let path = self.path.join(format!("{kind}-{}.{}", self.next, extension(mime_type)));
            self.next = self.next.checked_add(1).ok_or("there are too many files")?;
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    let Err(error) = file.write_all(&bytes).and_then(|()| file.flush()) else { return Ok(path) };
                    // An incomplete file is of no use, and may fill the disk.
                    let _ = fs::remove_file(&path);
                    return Err(format!("{}: {error}", path.display()));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
    }
}

/// The file extension for a MIME type.
fn extension(mime_type: &str) -> &'static str {
    let plain = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match plain.as_str() {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/bmp" => "bmp",
        "image/svg+xml" => "svg",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/ogg" => "ogg",
        "audio/flac" => "flac",
        "audio/mp4" => "m4a",
        "audio/webm" => "webm",
        "application/pdf" => "pdf",
        "application/zip" => "zip",
        "application/gzip" => "gz",
        "application/json" => "json",
        "text/plain" => "txt",
        "text/html" => "html",
        "text/csv" => "csv",
        _ => "bin",
    }
}

/// Decodes base64. White space is ignored, and padding may be missing.
fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut form = Specification::new();
    form.symbols.push_str("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
    form.ignore.push_str(" \t\r\n\x0c");
    form.check_trailing_bits = false;
    let form = form.encoding().map_err(|error| error.to_string())?;
    let unpadded = text.trim_end_matches(|char: char| char == '=' || char.is_ascii_whitespace());
    form.decode(unpadded.as_bytes()).map_err(|DecodeError { position, kind }| {
        let (before, rest) = unpadded.split_at_checked(position).unwrap_or((unpadded, ""));
        match rest.chars().next() {
            Some(char) if kind == DecodeKind::Symbol => {
                format!("its data is not base64: character {} is {char:?}", before.chars().count() + 1)
            }
            _ => "its data is not base64: it was cut off".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zg", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9v\r\nYmFy", "foobar"),
            ("Zm9vYg==", "foob"),
            ("Zh==", "f"),
            (" Z g = = \n", "f"),
        ] {
            assert_eq!(decode(text), Ok(bytes.into()), "{text}");
        }
        assert_eq!(decode("+/+/"), Ok(vec![0xfb, 0xff, 0xbf]));
    }

    #[test]
    fn invalid_base64_is_refused_with_the_place_of_the_error() {
        for (text, why) in [
            ("Zm9v!mFy", "character 5 is '!'"),
            ("Zm\n9v\u{e4}!", "character 6 is '\u{e4}'"),
            ("Zg==Zg==", "character 3 is '='"),
            ("Zm9vY", "it was cut off"),
        ] {
            let refused = decode(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn a_mime_type_determines_the_extension_and_an_unknown_one_gets_bin() {
        assert_eq!(extension("image/PNG; q=1"), "png");
        assert_eq!(extension("image/../../etc/passwd"), "bin");
    }
}

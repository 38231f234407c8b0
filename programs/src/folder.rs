//! Saves the parts of a result that are not text.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut buffer, mut bits, mut digits) = (0_u32, 0_u32, 0_usize);
    let mut has_end = false;
    for (at, char) in text.chars().enumerate() {
        let digit = match char {
            'A'..='Z' => u32::from(char) - u32::from('A'),
            'a'..='z' => u32::from(char) - u32::from('a') + 26,
            '0'..='9' => u32::from(char) - u32::from('0') + 52,
            '+' => 62,
            '/' => 63,
            '=' => {
                has_end = true;
                continue;
            }
            char if char.is_ascii_whitespace() => continue,
            char => return Err(format!("its data is not base64: character {} is {char:?}", at + 1)),
        };
        if has_end {
            return Err(format!("its data is not base64: it goes on after its end, at character {}", at + 1));
        }
        digits += 1;
        buffer = buffer << 6 | digit;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits) as u8);
            buffer &= (1 << bits) - 1;
        }
    }
    if digits % 4 == 1 {
        return Err("its data is not base64: it was cut off".to_owned());
    }
    Ok(bytes)
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
        ] {
            assert_eq!(decode(text), Ok(bytes.into()), "{text}");
        }
        assert_eq!(decode("+/+/"), Ok(vec![0xfb, 0xff, 0xbf]));
    }

    #[test]
    fn invalid_base64_is_refused_with_the_place_of_the_error() {
        for (text, why) in
            [("Zm9v!mFy", "character 5 is '!'"), ("Zg==Zg==", "after its end, at character 5"), ("Zm9vY", "it was cut off")]
        {
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

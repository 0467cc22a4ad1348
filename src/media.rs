//! Media types by the endings of names, and names that are safe on every file system and in every header.

/// Bytes of a file's name: file systems take 255.
pub const NAME_BYTES_MAX: usize = 200;

/// The type of what is not known.
pub const BINARY: &str = "application/octet-stream";

/// The media type of a file by its ending; the few that agents can use.
pub fn of_name(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map_or("", |(_, e)| e).to_ascii_lowercase();
    match ending.as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "json" => "application/json",
        "yaml" | "yml" => "application/yaml",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        "zip" => "application/zip",
        _ => BINARY,
    }
}

/// An ending for a media type, with its dot; none for what is not known.
pub fn ending(mime: &str) -> &'static str {
    match mime {
        "text/plain" => ".txt",
        "text/markdown" => ".md",
        "application/json" => ".json",
        "text/csv" => ".csv",
        "text/html" => ".html",
        "application/xml" | "text/xml" => ".xml",
        "image/svg+xml" => ".svg",
        "application/pdf" => ".pdf",
        "image/png" => ".png",
        "image/jpeg" => ".jpg",
        "image/gif" => ".gif",
        "image/webp" => ".webp",
        "audio/wav" | "audio/x-wav" => ".wav",
        "audio/mpeg" => ".mp3",
        "application/zip" => ".zip",
        _ => "",
    }
}

/// Whether a type is text that a model may read as it is.
pub fn is_text(mime: &str) -> bool {
    mime.starts_with("text/")
        || mime.ends_with("+json")
        || mime.ends_with("+xml")
        || matches!(
            mime,
            "application/json"
                | "application/xml"
                | "application/yaml"
                | "application/javascript"
                | "application/x-www-form-urlencoded"
        )
}

/// A media type without parameters in lower case, where the text is one (RFC 9110 §8.3.1).
pub fn essence(text: &str) -> Option<String> {
    let plain = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let token =
        |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b));
    let (kind, sub) = plain.split_once('/')?;
    (plain.len() <= 127 && token(kind) && token(sub)).then_some(plain)
}

/// Whether a header names this media type, whatever its case and its parameters (RFC 9110 §8.3.1).
pub fn is(header: &str, mime: &str) -> bool {
    header.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(mime)
}

/// A name without folders, without characters that a shell, a file system or a header may take for something
/// else, and never empty or hidden.
pub fn safe_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = last
        .chars()
        .map(|c| match c {
            c if c.is_control() || "<>:\"|?*".contains(c) => '_',
            // Marks that turn the direction of text, and blanks that cannot be seen.
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => '_',
            c => c,
        })
        .collect();
    // At once, since what stands behind one may be another: `-.x` is hidden as well.
    let blank = |c: char| c.is_whitespace() || c == '.';
    let plain = plain.trim_end_matches(blank).trim_start_matches(|c| blank(c) || c == '-');
    if plain.is_empty() {
        return "file".to_owned();
    }
    if plain.len() <= NAME_BYTES_MAX {
        return plain.to_owned();
    }
    // The ending says what it is: it stays.
    let ending = plain.rsplit_once('.').map(|(_, e)| e).filter(|e| e.len() <= 16);
    let room = NAME_BYTES_MAX - ending.map_or(0, |e| e.len() + 1);
    let head = crate::json::cut(plain, room).trim_end_matches(blank);
    ending.map_or_else(|| head.to_owned(), |e| format!("{head}.{e}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_lose_what_could_be_taken_for_something_else() {
        for (given, safe) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "passwd"),
            ("C:\\temp\\a.txt", "a.txt"),
            (".bashrc", "bashrc"),
            ("a\r\nSet-Cookie: x", "a__Set-Cookie_ x"),
            ("\u{202e}gpj.exe", "_gpj.exe"),
            ("-rf", "rf"),
            ("-.bashrc", "bashrc"),
            ("- .-.x. .", "x"),
            ("", "file"),
            ("..", "file"),
            ("Übersicht 1.csv", "Übersicht 1.csv"),
        ] {
            assert_eq!(safe_name(given), safe, "{given:?}");
        }
        let long = safe_name(&format!("{}.tar.gz", "x".repeat(500)));
        assert!(long.len() <= NAME_BYTES_MAX && long.get(long.len() - 3..) == Some(".gz"));
    }

    #[test]
    fn a_type_is_told_from_others_whatever_its_case_and_parameters() {
        for (header, same) in [
            ("application/json", true),
            (" Application/JSON ; charset=utf-8", true),
            ("application/json-seq", false),
            ("text/plain; a=application/json", false),
            ("", false),
        ] {
            assert_eq!(is(header, "application/json"), same, "{header:?}");
        }
    }

    #[test]
    fn types_are_read_without_parameters() {
        assert_eq!(essence("Text/Plain; charset=utf-8").as_deref(), Some("text/plain"));
        for bad in ["", "text", "text/", "text/pl ain", "a/b/c", "text/plain\r\nx: y"] {
            assert_eq!(essence(bad), None, "{bad:?}");
        }
        assert_eq!((of_name("a.PNG"), of_name("png")), ("image/png", BINARY));
    }

    proptest! {
        #[test]
        fn a_safe_name_stays_and_is_one_plain_name(name in "([-. ]{0,4}\\PC{0,300}[-. ]{0,4})") {
            let safe = safe_name(&name);
            prop_assert!(!safe.is_empty() && safe.len() <= NAME_BYTES_MAX);
            prop_assert!(!safe.contains(['/', '\\', '\0', '"', '\n']) && !safe.starts_with(['.', '-']));
            prop_assert_eq!(safe_name(&safe), safe.clone());
        }
    }
}

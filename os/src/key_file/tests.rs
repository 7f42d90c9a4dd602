use std::fs;

use super::*;

/// A temporary directory, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("slipgate-key-file-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.0.join("keys");
        let _ = fs::remove_file(&path);
        fs::write(&path, content).unwrap();
        set_mode(&path, mode);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(not(unix))]
fn set_mode(_: &Path, _: u32) {}

fn hex(byte: &str) -> String {
    byte.repeat(32)
}

#[test]
fn keys_are_read_newest_first_between_comments() {
    let folder = Folder::new("order");
    let path = folder.file(format!("# newest\n{}\r\n\n  # older\n  {}  \n", hex("02"), hex("01")), 0o600);
    let ring = read_key_file(path).unwrap();
    let first_bytes: Vec<_> = ring.iter().map(|key| key.expose()[0]).collect();
    assert_eq!(first_bytes, [2, 1]);
}

#[test]
fn keys_in_one_line_may_be_separated_by_commas() {
    assert_eq!(parse_keys(&format!("{}, {}", hex("02"), hex("01"))).unwrap().len(), 2);
}

#[test]
fn invalid_key_text_is_refused_without_showing_it() {
    let key = hex("0a");
    let cases = [
        (String::new(), KeyTextError::Empty),
        ("# nothing\n".to_owned(), KeyTextError::Empty),
        (["01", "02", "03", "04"].map(hex).join("\n"), KeyTextError::TooMany),
        (format!("{key}\n{}\n{}", hex("01"), key.to_uppercase()), KeyTextError::KeyTwice { line: 3 }),
        (format!("{key} id=a\n\n{key} id=b"), KeyTextError::KeyTwice { line: 3 }),
        (format!("{key}\n{}", &key[1..]), KeyTextError::NotAKey { line: 2 }),
        (format!("{key} # mine"), KeyTextError::NotAKey { line: 1 }),
        (key.replace('a', "x"), KeyTextError::NotAKey { line: 1 }),
        (format!("{key} id=0a0a\n{} id=b\n{} id=0a0a", hex("0b"), hex("0c")), KeyTextError::IdTwice { line: 3 }),
        (format!("{key} id=0a0a, {} id=0a0a", hex("0b")), KeyTextError::IdTwice { line: 1 }),
    ];
    for (text, expected) in cases {
        let error = parse_keys(&text).err().unwrap();
        assert_eq!(error, expected);
        assert!(!format!("{error} {error:?}").contains("0a0a"));
    }
}

#[cfg(unix)]
#[test]
fn exposed_key_file_is_refused_with_the_remedy() {
    let folder = Folder::new("mode");
    for mode in [0o640, 0o604, 0o620, 0o601, 0o777] {
        let path = folder.file(hex("01"), mode);
        let error = read_key_file(&path).err().unwrap();
        let message = error.to_string();
        assert!(message.contains(&format!("(mode 0{mode:o}): run `chmod 600 {}`", path.display())), "{message}");
        assert_eq!(error.path(), path);
    }
    for mode in [0o600, 0o400] {
        assert!(read_key_file(folder.file(hex("01"), mode)).is_ok());
    }
}

#[test]
fn invalid_key_file_is_refused_with_its_reason() {
    let folder = Folder::new("other");
    let message = |path: &Path| read_key_file(path).err().unwrap().to_string();
    assert!(message(&folder.0.join("none")).contains("cannot be read"));
    assert!(message(&folder.0).contains("is not a regular file"));
    assert!(message(&folder.file([0xff, 0xfe], 0o600)).contains("is not text"));
    assert!(message(&folder.file("#".repeat(4097), 0o600)).contains("longer than 4096 bytes"));
    assert!(message(&folder.file("#".repeat(4096), 0o600)).contains("it holds no key"));
    assert!(message(&folder.file("secret", 0o600)).ends_with("line 1 is not a key of 64 hexadecimal digits"));
}

#[test]
fn key_given_as_the_path_is_not_shown() {
    let error = read_key_file(hex("0a")).err().unwrap();
    assert!(error.to_string().starts_with("the key file … cannot be read: "), "{error}");
    assert!(!format!("{error:?}").contains("0a0a"));
}

#[cfg(unix)]
#[test]
fn pipe_is_refused_without_blocking() {
    let folder = Folder::new("pipe");
    let path = folder.0.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    if made.is_ok_and(|status| status.success()) {
        assert!(read_key_file(path).err().unwrap().to_string().contains("is not a regular file"));
    }
}

#[test]
fn key_seals_from_its_time_on_and_is_accepted_before() {
    let text = format!("{} id=new not-before=2000\n{} id=old not-before=1000\n", hex("22"), hex("11"));
    let schedule = parse_key_schedule(&text).unwrap();
    let first = |now| schedule.at(UnixSeconds(now))[0].expose()[0];
    assert_eq!([0, 999, 1000, 1999, 2000].map(first), [0x11, 0x11, 0x11, 0x11, 0x22]);
    assert_eq!([0, 999, 1000, 1999, 2000].map(|now| schedule.sealing_index(UnixSeconds(now))), [1, 1, 1, 1, 0]);
    assert_eq!(schedule.at(UnixSeconds(0)).len(), 2);
    assert_eq!((schedule.all()[0].expose()[0], schedule.all().len()), (0x22, 2));
    assert_eq!(schedule.next_change(UnixSeconds(1500)), Some(UnixSeconds(2000)));
    assert_eq!(schedule.next_change(UnixSeconds(2000)), None);
    assert_eq!(schedule.keys()[1].id(), Some("old"));
    for wrong in ["id=", "not-before=", "not-before=x", "not-before=-1", "after=1", "x"] {
        let wrong = parse_key_schedule(&format!("{} {wrong}", hex("11"))).err();
        assert_eq!(wrong, Some(KeyTextError::NotAKey { line: 1 }));
    }
}

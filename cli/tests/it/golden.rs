//! Multifiles written by SIONlib 1.7.6, and what their manifest says.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// All cases, unpacked into one folder.
pub(crate) struct Golden {
    folder: TempDir,
    cases: Vec<Value>,
}

impl Golden {
    pub(crate) fn unpack() -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../multifile/rust/tests/golden");
        let manifest = fs::read(source.join("manifest.json")).expect("a manifest");
        let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
        let cases = manifest["cases"].as_array().expect("cases").clone();
        let folder = TempDir::new().expect("a folder");
        for file in cases.iter().flat_map(|case| case["files"].as_array().expect("files")) {
            let stored = source.join(text(&file["stored_as"]));
            let packed = fs::read(&stored).expect("a stored file");
            let target = folder.path().join(text(&file["name"]));
            if stored.extension().is_some_and(|extension| extension == "zst") {
                let mut reader =
                    ruzstd::decoding::StreamingDecoder::new(&packed[..]).expect("packed");
                io::copy(&mut reader, &mut File::create(target).expect("a file")).expect("unpacks");
            } else {
                fs::write(target, packed).expect("a file");
            }
        }
        Self { folder, cases }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The cases that SIONlib can open.
    pub(crate) fn closed(&self) -> Vec<&Value> {
        let cases = self.cases.iter().filter(|case| case["closed"] == true);
        let cases: Vec<_> = cases.collect();
        assert!(cases.len() > 30);
        cases
    }

    /// Every file's content, to see later that none was changed.
    pub(crate) fn contents(&self) -> Vec<(PathBuf, String)> {
        let entries = fs::read_dir(self.folder.path()).expect("readable");
        let mut all: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_file())
            .map(|path| (path.clone(), sha256(&fs::read(path).expect("readable"))))
            .collect();
        all.sort();
        all
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

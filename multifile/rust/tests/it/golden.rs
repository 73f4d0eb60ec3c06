//! Multifiles written by SIONlib 1.7.6, and what its manifest says about them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// All cases unpacked into one folder.
pub(crate) struct Golden {
    pub(crate) folder: TempDir,
    pub(crate) cases: Vec<Value>,
}

impl Golden {
    pub(crate) fn unpack() -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let manifest = fs::read(source.join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let cases = manifest["cases"].as_array().unwrap().clone();
        let folder = TempDir::new().unwrap();
        for file in cases.iter().flat_map(|case| case["files"].as_array().unwrap()) {
            let stored = source.join(text(&file["stored_as"]));
            let target = folder.path().join(text(&file["name"]));
            if stored.extension().is_some_and(|extension| extension == "zst") {
                unpack(&stored, &target);
            } else {
                fs::copy(stored, target).unwrap();
            }
        }
        assert!(cases.len() > 30);
        Self { folder, cases }
    }

    pub(crate) fn case(&self, name: &str) -> &Value {
        self.cases.iter().find(|case| case["name"] == name).unwrap()
    }

    pub(crate) fn path(&self, name: &Value) -> PathBuf {
        self.folder.path().join(text(name))
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

pub(crate) fn list<T>(value: &Value, each: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(each).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unpack(stored: &Path, target: &Path) {
    let packed = fs::File::open(stored).unwrap();
    let mut reader = ruzstd::decoding::StreamingDecoder::new(packed).unwrap();
    io::copy(&mut reader, &mut fs::File::create(target).unwrap()).unwrap();
}

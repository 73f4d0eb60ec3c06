//! The image of a program: an ELF file as the dynamic loader and the kernel see it, read without
//! running it.

mod instructions;

use std::{
    collections::BTreeSet,
    env::consts::ARCH,
    fs, io,
    path::{Path, PathBuf},
};

use object::{
    Endianness, Object as _, ObjectKind, ObjectSection as _, ObjectSymbol as _, ReadCache,
    SectionKind,
    elf::{
        DF_1_PIE, DT_FLAGS_1, DT_NEEDED, DT_RPATH, DT_RUNPATH, ELFMAG, EM_AARCH64, EM_X86_64,
        ET_EXEC, FileHeader64, PT_INTERP,
    },
    read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _},
};

use self::instructions::Sites;

/// Offsets in the file header, and the values of a 64-bit little-endian file.
const CLASS_AT: usize = 4;
const CLASS_64: u8 = 2;
const ORDER_AT: usize = 5;
const ORDER_LITTLE: u8 = 1;
const MACHINE_AT: usize = 18;

/// Kind of content found in a file.
#[derive(Debug)]
pub(crate) enum Content {
    /// An ELF file for this machine.
    Image(Box<Image>),
    /// An ELF file for another machine.
    Foreign,
    /// Begins with `#!`: the interpreter and its argument.
    Script(PathBuf, Option<String>),
    /// None of these.
    Unknown,
}

/// The parts of an ELF file that bear on interposition.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// The dynamic loader it asks for.
    pub(crate) interpreter: Option<String>,
    /// A program, not a library: either kind may come without an interpreter.
    pub(crate) program: bool,
    pub(crate) needed: Vec<String>,
    pub(crate) rpath: Vec<PathBuf>,
    pub(crate) runpath: Vec<PathBuf>,
    /// Dynamic symbols it uses and does not define.
    pub(crate) imports: BTreeSet<String>,
    /// Dynamic symbols it defines.
    pub(crate) exports: BTreeSet<String>,
    /// Built by the Go tool chain.
    pub(crate) go: bool,
    /// System calls that touch files, made by its own instructions.
    pub(crate) sites: Sites,
}

impl Content {
    /// Reads and judges the file at `path`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is an ELF file whose tables are damaged (`InvalidData`).
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        if let Some(line) = bytes.strip_prefix(b"#!") {
            return Ok(script(line));
        }
        if !bytes.starts_with(&ELFMAG) {
            return Ok(Self::Unknown);
        }
        if !native(&bytes) {
            return Ok(Self::Foreign);
        }
        let image = Image::parse(&bytes, path);
        let image = image.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        Ok(Self::Image(Box::new(image)))
    }
}

impl Image {
    fn parse(bytes: &[u8], path: &Path) -> Result<Self, object::Error> {
        let file = ElfFile64::<Endianness>::parse(bytes)?;
        let (header, endian) = (file.elf_header(), file.endian());
        let mut image = Self::default();
        for segment in file.elf_program_headers() {
            if let Some(name) = segment.interpreter(endian, bytes)? {
                image.interpreter = Some(String::from_utf8_lossy(name).into_owned());
            }
        }
        image.program = header.e_type(endian) == ET_EXEC || image.interpreter.is_some();
        image.read_dynamic(&file, path)?;
        for symbol in file.dynamic_symbols() {
            let name = symbol.name()?.to_owned();
            if symbol.is_undefined() {
                image.imports.insert(name);
            } else {
                image.exports.insert(name);
            }
        }
        for section in file.sections() {
            match section.name() {
                Ok(".note.go.buildid" | ".go.buildinfo") => image.go = true,
                _ if section.kind() == SectionKind::Text => {
                    image.sites.merge(instructions::scan(section.data()?));
                }
                _ => {}
            }
        }
        Ok(image)
    }

    fn read_dynamic(
        &mut self,
        file: &ElfFile64<'_, Endianness>,
        path: &Path,
    ) -> Result<(), object::Error> {
        let folder = path.canonicalize().ok();
        let folder = folder.as_deref().and_then(Path::parent).unwrap_or(Path::new("/"));
        let table = file.elf_dynamic_table()?;
        for entry in table.iter() {
            let text = || table.string(entry).map(String::from_utf8_lossy);
            match entry.tag {
                DT_NEEDED => self.needed.push(text()?.into_owned()),
                DT_RPATH => self.rpath = search_list(&text()?, folder),
                DT_RUNPATH => self.runpath = search_list(&text()?, folder),
                DT_FLAGS_1 => self.program |= entry.val & DF_1_PIE.0 != 0,
                _ => {}
            }
        }
        if !self.runpath.is_empty() {
            self.rpath.clear();
        }
        Ok(())
    }
}

/// True if the file at `path` is an ELF file this machine can load.
pub(crate) fn is_native(path: &Path) -> bool {
    use io::Read as _;
    let mut header = Vec::new();
    let head = fs::File::open(path).and_then(|file| {
        let len = u64::try_from(size_of::<FileHeader64<Endianness>>()).unwrap_or(u64::MAX);
        file.take(len).read_to_end(&mut header)
    });
    head.is_ok() && header.starts_with(&ELFMAG) && native(&header)
}

/// True if the file at `path` is a library that the loader takes on this machine: whole, and no
/// program.
pub(crate) fn is_library(path: &Path) -> bool {
    // One after the other: this process may have few descriptors.
    let is_native = is_native(path);
    let Ok(file) = fs::File::open(path) else { return false };
    let content = ReadCache::new(file);
    let library = ElfFile64::<Endianness, _>::parse(&content);
    is_native
        && library.is_ok_and(|library| {
            let mut segments = library.elf_program_headers().iter();
            library.kind() == ObjectKind::Dynamic
                && segments.all(|segment| segment.p_type(library.endian()) != PT_INTERP)
        })
}

fn native(header: &[u8]) -> bool {
    let machine = match ARCH {
        "x86_64" => EM_X86_64,
        "aarch64" => EM_AARCH64,
        _ => return false,
    };
    let found = header.get(MACHINE_AT..).and_then(|bytes| bytes.first_chunk());
    header.get(CLASS_AT) == Some(&CLASS_64)
        && header.get(ORDER_AT) == Some(&ORDER_LITTLE)
        && found.is_some_and(|bytes| u16::from_le_bytes(*bytes) == machine.0)
}

/// The folders of a search list; `$ORIGIN` is the folder of the file that has it.
fn search_list(list: &str, origin: &Path) -> Vec<PathBuf> {
    let origin = origin.display().to_string();
    let expand = |part: &str| {
        let part = part.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
        PathBuf::from(part)
    };
    list.split(':').filter(|part| !part.is_empty()).map(expand).collect()
}

/// The first line of a script, behind `#!`.
fn script(bytes: &[u8]) -> Content {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.trim().splitn(2, [' ', '\t']);
    let interpreter = words.next().unwrap_or_default();
    let argument = words.next().map(|text| text.trim().to_owned());
    Content::Script(PathBuf::from(interpreter), argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_damaged_program_is_an_error_or_an_image_and_never_a_panic() {
        let whole = fs::read("/bin/true").expect("a program");
        for len in (0..whole.len()).step_by(61) {
            Image::parse(&whole[..len], Path::new("/bin/true")).ok();
        }
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..500 {
            let mut damaged = whole.clone();
            for _ in 0..8 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from(random >> 33).expect("31 bits") % 4096;
                damaged[at] = random.to_le_bytes()[7];
            }
            Image::parse(&damaged, Path::new("/bin/true")).ok();
        }
    }

    #[test]
    fn a_script_names_its_interpreter_and_one_argument() {
        for (line, path, argument) in [
            ("/bin/sh\nx", "/bin/sh", None),
            (" /usr/bin/env  -S python3 -u \n", "/usr/bin/env", Some("-S python3 -u")),
            ("", "", None),
        ] {
            let Content::Script(found, rest) = script(line.as_bytes()) else {
                panic!("{line} is a script");
            };
            assert_eq!((found.to_str(), rest.as_deref()), (Some(path), argument));
        }
    }

    #[test]
    fn origin_is_the_folder_of_the_file() {
        let found = search_list("$ORIGIN/../lib:${ORIGIN}::/opt", Path::new("/a/bin"));
        let wanted: Vec<_> = ["/a/bin/../lib", "/a/bin", "/opt"].map(PathBuf::from).into();
        assert_eq!(found, wanted);
    }
}

//! Recipes for package managers: each is read as its manager reads it, and names what there is.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::harness::{Folder, SOON, skip, succeed};

const SPACK: &str = "spack/packages/kakehi/package.py";
const EASYBUILD: &str = "easybuild/kakehi-0.1.0.eb";
const CONDA: &str = "conda/recipe.yaml";
const APPTAINER: &str = "apptainer/kakehi.def";

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().expect("the root")
}

fn recipe(name: &str) -> PathBuf {
    root().join("packaging").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(recipe(name)).expect("readable")
}

/// The release that the root manifest names.
fn version() -> String {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("readable");
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    version.expect("a version").trim_matches('"').to_owned()
}

/// The answer of a Python script about a recipe.
fn told(python: &Path, script: &str, name: &str) -> String {
    let mut command = Command::new(python);
    command.args(["-c", script]).arg(recipe(name)).env("PYTHONDONTWRITEBYTECODE", "1");
    succeed(&mut command, SOON).trim_end().to_owned()
}

/// The Python that `make setup` made, if it has these modules.
fn python(modules: &str) -> Option<PathBuf> {
    let python = root().join("target/venv/bin/python");
    let found = Command::new(&python).arg("-c").arg(format!("import {modules}")).output();
    let has = found.is_ok_and(|output| output.status.success());
    if !has {
        skip("recipe", format!("no {modules} in target/venv: run 'make setup'"));
    }
    has.then_some(python)
}

#[test]
fn recipes_name_no_host_and_the_release() {
    for name in [SPACK, EASYBUILD, CONDA, APPTAINER] {
        let text = read(name);
        assert!(!text.contains("http:") && !text.contains("https:"), "{name}");
        assert!(!text.contains("/opt/"), "{name}: a folder of somebody's");
    }
    for name in [EASYBUILD, CONDA, APPTAINER] {
        assert!(read(name).contains(&version()), "{name}");
    }
    let makefile = fs::read_to_string(root().join("Makefile")).expect("readable");
    for target in ["build:", "install:", "install-mpi:", "packages:"] {
        assert!(makefile.lines().any(|line| line.starts_with(target)), "{target}");
    }
}

/// A test of what a program does at a signal would wait for ever where `nohup` has it ignored.
#[test]
fn make_resets_ignored_signals_for_tests() {
    let folder = Folder::new();
    let cargo = folder.join("cargo");
    let script = "#!/bin/sh\n[ \"$1\" != test ] || grep SigIgn /proc/self/status >>\"$0\".seen\n";
    fs::write(&cargo, script).expect("a script");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("its mode");
    let mut make = Command::new("nohup");
    make.args(["make", "-C"]).arg(root()).args(["unit", "e2e"]);
    succeed(make.arg(format!("CARGO={}", cargo.display())), SOON);
    let seen = fs::read_to_string(cargo.with_extension("seen")).expect("two tests");
    let ignored = |line: &str| u64::from_str_radix(line.split_whitespace().last()?, 16).ok();
    let ignored: Vec<_> = seen.lines().map(ignored).collect();
    // Bit 0 is SIGHUP's.
    assert!(ignored.len() == 2 && ignored.iter().all(|set| set.is_some_and(|set| set & 1 == 0)));
}

/// Names, calls, and targets of the package, as Python's own parser has them.
const OF_SPACK: &str = r#"
import ast, sys
from pathlib import Path
tree = ast.parse(open(sys.argv[1]).read())
[package] = [it for it in tree.body if isinstance(it, ast.ClassDef)]
assert package.name == 'Kakehi' and ast.unparse(package.bases[0]) == 'Package'
calls = [getattr(it, 'value', None) for it in package.body]
calls = [it for it in calls if isinstance(it, ast.Call)]
known = {'license', 'version', 'variant', 'depends_on', 'conflicts'}
assert {it.func.id for it in calls} <= known, calls
variants = {it.args[0].value for it in calls if it.func.id == 'variant'}
wanted = {k.value.value.lstrip('+') for it in calls for k in it.keywords if k.arg == 'when'}
assert wanted <= variants, wanted
makes = [it for it in ast.walk(tree) if isinstance(it, ast.Call)]
makes = [it for it in makes if getattr(it.func, 'id', '') == 'make']
print(*(a.value for it in makes for a in it.args if isinstance(a, ast.Constant)))
values = {'Path': Path, '__file__': sys.argv[1]}
where = [it for it in tree.body if isinstance(it, ast.Assign)]
where += [it for it in package.body if isinstance(it, ast.Assign)]
exec(compile(ast.Module(where, []), 'package', 'exec'), values)
print(values['git'])
"#;

#[test]
fn spack_recipe_builds_the_checkout_that_it_is_in() {
    let told = told(Path::new("python3"), OF_SPACK, SPACK);
    let (targets, git) = told.split_once('\n').expect("two lines");
    assert_eq!(targets, "build -o build install install-mpi");
    assert_eq!(git, format!("file://{}", root().display()));
    let folders: Vec<_> = SPACK.split('/').collect();
    let repository = fs::read_to_string(recipe("spack/repo.yaml")).expect("readable");
    assert!(folders[1] == "packages" && repository.contains("namespace: kakehi"), "{repository}");
}

/// Parameters that EasyBuild and the easyblock do not know, those that are missing, and faults of
/// style.
const OF_EASYBUILD: &str = r#"
import sys
from easybuild.framework.easyconfig.default import DEFAULT_CONFIG
from easybuild.framework.easyconfig.parser import EasyConfigParser
from easybuild.framework.easyconfig.style import check_easyconfigs_style
from easybuild.easyblocks.generic.configuremake import ConfigureMake
found = EasyConfigParser(sys.argv[1]).get_config_dict()
known = set(DEFAULT_CONFIG) | set(ConfigureMake.extra_options()) | {'easyblock'}
assert set(found) <= known, set(found) - known
must = {'name', 'version', 'homepage', 'description', 'toolchain'}
assert must <= set(found), must - set(found)
assert check_easyconfigs_style([sys.argv[1]]) == 0
print(found['easyblock'], found['name'], found['version'], *found['sources'])
"#;

#[test]
fn easybuild_knows_every_parameter_of_its_recipe() {
    let modules = "easybuild.framework, easybuild.easyblocks, pycodestyle";
    let Some(python) = python(modules) else { return };
    let told = told(&python, OF_EASYBUILD, EASYBUILD);
    let told = told.lines().last().unwrap_or_default();
    let version = version();
    let expected = format!("ConfigureMake kakehi {version} %(name)s-%(version)s.tar.gz");
    assert_eq!(told, expected);
}

const OF_CONDA: &str = "
import sys, rattler_build
[made] = rattler_build.Stage0Recipe.from_file(sys.argv[1]).render(rattler_build.VariantConfig())
print(made.recipe.package.name, made.recipe.package.version)
";

#[test]
fn conda_recipe_is_rendered() {
    let Some(python) = python("rattler_build") else { return };
    assert_eq!(told(&python, OF_CONDA, CONDA), format!("kakehi {}", version()));
    // `source: path` is from the recipe's folder.
    assert!(read(CONDA).contains("  path: ../..\n"));
}

#[test]
fn apptainer_definition_has_known_sections_and_the_package() {
    let text = read(APPTAINER);
    let lines = || text.lines().filter(|line| !line.starts_with('#'));
    let header: Vec<_> = lines().take_while(|line| !line.starts_with('%')).collect();
    assert!(header.contains(&"Bootstrap: docker"), "{header:?}");
    assert!(header.iter().any(|line| line.starts_with("From: debian:")), "{header:?}");
    let sections: Vec<_> = lines().filter_map(|line| line.strip_prefix('%')).collect();
    let known = ["files", "post", "environment", "runscript", "test", "help"];
    assert_eq!(sections, known);
    let package = format!("    dist/kakehi_{}_amd64.deb /tmp/kakehi.deb", version());
    assert!(text.contains(&package), "what 'make packages' makes");
}

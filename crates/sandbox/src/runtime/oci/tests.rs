//! A program that fails for every sandbox.

use super::*;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/runtime/oci/tests/program.sh");
const ID: &str = "sbx-1";

#[tokio::test]
async fn a_sandbox_exists_as_long_as_the_program_has_its_state_even_if_the_program_fails() {
    let home = tempfile::tempdir().unwrap();
    let oci = Oci {
        program: PROGRAM.to_owned(),
        state: home.path().join("state"),
        agent: PathBuf::new(),
        templates: Templates::new(home.path().join("templates")),
    };
    let dir = SandboxDir::new(home.path().join(ID));
    for file in state_files(ID) {
        let file = oci.state.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        oci.state(ID).await.unwrap_err();
        oci.kill(ID, &dir).await.unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(oci.state(ID).await.unwrap().is_none());
        oci.kill(ID, &dir).await.unwrap();
    }
}

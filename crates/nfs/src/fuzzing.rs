//! Entry points of the fuzz targets: requests in an input are executed without a socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use crate::clients::ClientList;
use crate::dispatch::{self, Caller};
use crate::error::NfsError;
use crate::export::{Access, Identity};
use crate::handle::Handle;
use crate::hooks::{NoGate, NoLimit, NoObserver};
use crate::server::{Context, Rules, UsedExport};
use crate::settings::Settings;
use crate::state_dir::KEY_LEN;
use crate::table::ROOT;
use crate::volume::Volume;
use crate::wire::{RecordReader, Source};

/// Placeholder in an input, which is replaced by the file handle of the exported directory.
pub const ROOT_HANDLE: &[u8; 32] = b"<handle of the root: 32 bytes..>";

/// Key of the MAC in file handles.
const KEY: [u8; KEY_LEN] = [7; KEY_LEN];

/// Bytes of an input that were not read yet.
struct Bytes<'a>(&'a [u8]);

impl Source for Bytes<'_> {
    fn read_some(&mut self, out: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        let (head, rest) = self.0.split_at(self.0.len().min(max));
        out.extend_from_slice(head);
        self.0 = rest;
        Ok(head.len())
    }
}

/// Exports `directory/root`, which must exist, and executes requests on it. `input` has the requests with their record
/// marks. Stops at the first request that cannot be read or has no reply. Returns the number of replies.
pub fn execute_requests(input: &[u8], directory: &Path) -> Result<usize, NfsError> {
    let context = Context::new(&Settings::new(directory), KEY, Arc::new(NoObserver));
    let volume = open_volume(directory, &context)?;
    let handle = Handle { generation: volume.generation(), id: ROOT }.encode(&KEY);
    let rules = volume.shared_rules();
    context.registry.reserve(&rules)?;
    context.registry.publish(&rules.name, Arc::new(volume));
    let input = replace(input, ROOT_HANDLE, &handle);
    let mut reader = RecordReader::new(Bytes(&input));
    let (mut record, mut reply, mut replies) = (Vec::new(), Vec::new(), 0);
    while let Ok(true) = reader.read(&mut record) {
        let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 1023));
        let (before_waiting, admit_large_reply) = (&mut || {}, &mut || true);
        let used_export = &UsedExport::default();
        let mut caller = Caller { context: &context, client, used_export, before_waiting, admit_large_reply };
        if dispatch::execute(&mut caller, &record, &mut reply).is_err() {
            break;
        }
        assert!(reply.len() % 4 == 0 && reply.len() >= 16, "a reply is a whole number of words");
        replies += 1;
    }
    Ok(replies)
}

/// Opens `directory/root` as a volume: the directory of an export with its table of file handles.
fn open_volume(directory: &Path, context: &Context) -> Result<Volume, NfsError> {
    let root = directory.join("root");
    let unusable = |source| NfsError::State { path: root.clone(), source };
    let open = std::fs::File::open(&root).map_err(unusable)?.into();
    let rules = Rules {
        name: "export".to_owned(),
        identity: Identity::own(),
        access: Access::ReadWrite,
        clients: ClientList::any(),
        secret: None,
        gate: Arc::new(NoGate),
        disk_limit: Arc::new(NoLimit),
    };
    let Context { open_files, table_budget, .. } = context;
    Volume::open(Arc::new(rules), open, "", &directory.join("table"), open_files, table_budget)
}

/// Replaces all occurrences of `from`.
fn replace(input: &[u8], from: &[u8; 32], to: &[u8; 32]) -> Vec<u8> {
    let mut output = input.to_vec();
    let mut at = 0;
    while at + from.len() <= output.len() {
        if output[at..at + from.len()] == *from {
            output[at..at + from.len()].copy_from_slice(to);
            at += from.len();
        } else {
            at += 1;
        }
    }
    output
}

//! Small NFS client. It has a function for each procedure, which sends a call and waits for the reply.

use std::io::{Cursor, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nfs3_types::mount::{dirpath, mountres3, mountstat3};
use nfs3_types::nfs3::*;
use nfs3_types::rpc::{accept_stat_data, auth_unix, call_body, msg_body, opaque_auth, reply_body, rpc_msg};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack, Void};
use socket2::{Domain, Socket, Type};

/// RPC program number of NFS.
pub(crate) const NFS: u32 = 100_003;

/// RPC program number of MOUNT.
pub(crate) const MOUNT: u32 = 100_005;

/// Result of an NFS operation, or its error status.
pub(crate) type Answer<T> = Result<T, nfsstat3>;

/// Next xid (id of an RPC call).
static XID: AtomicU32 = AtomicU32::new(1);

/// Connection to a server.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

/// Encodes a call, with its record mark.
pub(crate) fn record(xid: u32, program: u32, procedure: u32, arguments: &impl Pack) -> Vec<u8> {
    let credential = auth_unix { uid: 1234, gid: 1234, ..auth_unix::default() };
    let call = call_body {
        rpcvers: 2,
        prog: program,
        vers: 3,
        proc: procedure,
        cred: opaque_auth::auth_unix(&credential),
        verf: opaque_auth::default(),
    };
    let mut body = Vec::new();
    rpc_msg { xid, body: msg_body::CALL(call) }.pack(&mut body).unwrap();
    arguments.pack(&mut body).unwrap();
    marked(&body)
}

/// Adds the record mark of a single fragment.
pub(crate) fn marked(body: &[u8]) -> Vec<u8> {
    let mark = u32::try_from(body.len()).unwrap() | 1 << 31;
    [mark.to_be_bytes().as_slice(), body].concat()
}

/// Returns an xid that no other call of this process has.
pub(crate) fn next_xid() -> u32 {
    XID.fetch_add(1, Ordering::Relaxed)
}

/// Decodes a value. Panics if the data has further bytes.
pub(crate) fn decode_all<T: Unpack>(data: &[u8]) -> T {
    let mut input = Cursor::new(data);
    let (value, _) = T::unpack(&mut input).unwrap();
    assert_eq!(input.position(), data.len() as u64, "the result has an unexpected length");
    value
}

impl Client {
    pub(crate) fn connect(port: u16) -> Self {
        Self::connect_from(Ipv4Addr::LOCALHOST, port)
    }

    /// Connects from an address in 127.0.0.0/8. All of them belong to this machine.
    pub(crate) fn connect_from(source: Ipv4Addr, port: u16) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    pub(crate) fn send(&mut self, data: &[u8]) {
        self.stream.write_all(data).unwrap();
    }

    /// Receives a reply without its record mark. `None` if the connection was closed.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut mark = [0; 4];
        match self.stream.read_exact(&mut mark) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no reply in time"),
            Err(_) => return None,
        }
        let length = u32::from_be_bytes(mark);
        assert!(length & 1 << 31 != 0, "a reply is one fragment");
        let mut reply = vec![0; (length & !(1 << 31)) as usize];
        self.stream.read_exact(&mut reply).unwrap();
        Some(reply)
    }

    /// Receives the reply to a call. Returns its xid and the encoded result. Panics if the call was not executed.
    pub(crate) fn receive_result(&mut self) -> (u32, Vec<u8>) {
        let reply = self.receive().expect("the connection is open");
        let mut input = Cursor::new(reply.as_slice());
        let (message, _) = rpc_msg::unpack(&mut input).unwrap();
        let at = usize::try_from(input.position()).unwrap();
        match message.body {
            msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted))
                if matches!(accepted.reply_data, accept_stat_data::SUCCESS) => {}
            other => panic!("the call was not executed: {other:?}"),
        }
        (message.xid, reply[at..].to_vec())
    }

    /// Sends a call, and decodes the result in its reply.
    pub(crate) fn call<R: Unpack>(&mut self, program: u32, procedure: u32, arguments: &impl Pack) -> R {
        let xid = next_xid();
        self.send(&record(xid, program, procedure, arguments));
        let (replied, result) = self.receive_result();
        assert_eq!(replied, xid);
        decode_all(&result)
    }

    /// Calls a procedure of NFS by its number in RFC 1813.
    fn nfs<R: Unpack, E: Unpack>(&mut self, procedure: u32, arguments: &impl Pack) -> Answer<R> {
        match self.call::<Nfs3Result<R, E>>(NFS, procedure, arguments) {
            Nfs3Result::Ok(result) => Ok(result),
            Nfs3Result::Err((status, _)) => Err(status),
        }
    }

    pub(crate) fn mount(&mut self, path: &str) -> Result<nfs_fh3, mountstat3> {
        let path = dirpath(Opaque::borrowed(path.as_bytes()));
        match self.call::<mountres3<'_>>(MOUNT, 1, &path) {
            mountres3::Ok(mounted) => Ok(nfs_fh3 { data: Opaque::owned(mounted.fhandle.0.to_vec()) }),
            mountres3::Err(status) => Err(status),
        }
    }

    pub(crate) fn null(&mut self) {
        let _: Void = self.call(NFS, 0, &Void);
    }

    pub(crate) fn getattr(&mut self, file: &nfs_fh3) -> Answer<fattr3> {
        let result = self.nfs::<GETATTR3resok, Void>(1, &GETATTR3args { object: file.clone() });
        result.map(|it| it.obj_attributes)
    }

    pub(crate) fn setattr(&mut self, file: &nfs_fh3, set: sattr3) -> Answer<wcc_data> {
        self.setattr_guarded(file, set, None)
    }

    pub(crate) fn setattr_guarded(
        &mut self,
        file: &nfs_fh3,
        set: sattr3,
        guard: Option<nfstime3>,
    ) -> Answer<wcc_data> {
        let guard = guard.map_or(Nfs3Option::None, Nfs3Option::Some);
        let arguments = SETATTR3args { object: file.clone(), new_attributes: set, guard };
        self.nfs::<SETATTR3resok, SETATTR3resfail>(2, &arguments).map(|it| it.obj_wcc)
    }

    pub(crate) fn lookup(&mut self, dir: &nfs_fh3, name: impl AsRef<[u8]>) -> Answer<(nfs_fh3, fattr3)> {
        let arguments = LOOKUP3args { what: at(dir, name.as_ref()) };
        let found = self.nfs::<LOOKUP3resok, LOOKUP3resfail>(3, &arguments)?;
        assert!(found.dir_attributes.is_some());
        Ok((found.object, found.obj_attributes.unwrap()))
    }

    pub(crate) fn access(&mut self, file: &nfs_fh3, rights: u32) -> Answer<u32> {
        let arguments = ACCESS3args { object: file.clone(), access: rights };
        self.nfs::<ACCESS3resok, ACCESS3resfail>(4, &arguments).map(|it| it.access)
    }

    pub(crate) fn readlink(&mut self, file: &nfs_fh3) -> Answer<Vec<u8>> {
        let arguments = READLINK3args { symlink: file.clone() };
        self.nfs::<READLINK3resok<'_>, READLINK3resfail>(5, &arguments).map(|it| it.data.0.to_vec())
    }

    /// Reads from a file. Returns the content, and true at the end of the file.
    pub(crate) fn read(&mut self, file: &nfs_fh3, offset: u64, count: u32) -> Answer<(Vec<u8>, bool)> {
        let arguments = READ3args { file: file.clone(), offset, count };
        let read = self.nfs::<READ3resok<'_>, READ3resfail>(6, &arguments)?;
        assert_eq!(read.count as usize, read.data.len());
        assert!(read.file_attributes.is_some());
        Ok((read.data.to_vec(), read.eof))
    }

    pub(crate) fn write(&mut self, file: &nfs_fh3, offset: u64, data: &[u8]) -> Answer<WRITE3resok> {
        self.write_stable(file, offset, data, stable_how::UNSTABLE)
    }

    pub(crate) fn write_stable(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Answer<WRITE3resok> {
        let count = u32::try_from(data.len()).unwrap();
        let data = Opaque::borrowed(data);
        self.nfs::<WRITE3resok, WRITE3resfail>(
            7,
            &WRITE3args { file: file.clone(), offset, count, stable, data },
        )
    }

    pub(crate) fn create(&mut self, dir: &nfs_fh3, name: impl AsRef<[u8]>) -> Answer<nfs_fh3> {
        self.create_how(dir, name, createhow3::GUARDED(sattr3::default())).map(|(file, _)| file)
    }

    pub(crate) fn create_how(
        &mut self,
        dir: &nfs_fh3,
        name: impl AsRef<[u8]>,
        how: createhow3,
    ) -> Answer<(nfs_fh3, fattr3)> {
        let arguments = CREATE3args { where_: at(dir, name.as_ref()), how };
        let created = self.nfs::<CREATE3resok, CREATE3resfail>(8, &arguments)?;
        assert!(is_complete(&created.dir_wcc));
        Ok((created.obj.unwrap(), created.obj_attributes.unwrap()))
    }

    pub(crate) fn mkdir(&mut self, dir: &nfs_fh3, name: impl AsRef<[u8]>, set: sattr3) -> Answer<nfs_fh3> {
        let arguments = MKDIR3args { where_: at(dir, name.as_ref()), attributes: set };
        let created = self.nfs::<MKDIR3resok, MKDIR3resfail>(9, &arguments)?;
        assert!(is_complete(&created.dir_wcc) && created.obj_attributes.is_some());
        Ok(created.obj.unwrap())
    }

    pub(crate) fn symlink(&mut self, dir: &nfs_fh3, name: &str, target: &[u8]) -> Answer<nfs_fh3> {
        let symlink = symlinkdata3 {
            symlink_attributes: sattr3::default(),
            symlink_data: nfspath3(Opaque::borrowed(target)),
        };
        let arguments = SYMLINK3args { where_: at(dir, name.as_bytes()), symlink };
        let created = self.nfs::<SYMLINK3resok, SYMLINK3resfail>(10, &arguments)?;
        Ok(created.obj.unwrap())
    }

    pub(crate) fn mknod(&mut self, dir: &nfs_fh3, name: &str, what: mknoddata3) -> Answer<(nfs_fh3, fattr3)> {
        let arguments = MKNOD3args { where_: at(dir, name.as_bytes()), what };
        let created = self.nfs::<MKNOD3resok, MKNOD3resfail>(11, &arguments)?;
        Ok((created.obj.unwrap(), created.obj_attributes.unwrap()))
    }

    pub(crate) fn remove(&mut self, dir: &nfs_fh3, name: impl AsRef<[u8]>) -> Answer<wcc_data> {
        let arguments = REMOVE3args { object: at(dir, name.as_ref()) };
        self.nfs::<REMOVE3resok, REMOVE3resfail>(12, &arguments).map(|it| it.dir_wcc)
    }

    pub(crate) fn rmdir(&mut self, dir: &nfs_fh3, name: impl AsRef<[u8]>) -> Answer<wcc_data> {
        let arguments = RMDIR3args { object: at(dir, name.as_ref()) };
        self.nfs::<RMDIR3resok, RMDIR3resfail>(13, &arguments).map(|it| it.dir_wcc)
    }

    pub(crate) fn rename(
        &mut self,
        (from, from_name): (&nfs_fh3, &str),
        (to, to_name): (&nfs_fh3, &str),
    ) -> Answer<RENAME3resok> {
        let (from, to) = (at(from, from_name.as_bytes()), at(to, to_name.as_bytes()));
        self.nfs::<RENAME3resok, RENAME3resfail>(14, &RENAME3args { from, to })
    }

    pub(crate) fn link(&mut self, file: &nfs_fh3, dir: &nfs_fh3, name: &str) -> Answer<LINK3resok> {
        let arguments = LINK3args { file: file.clone(), link: at(dir, name.as_bytes()) };
        self.nfs::<LINK3resok, LINK3resfail>(15, &arguments)
    }

    /// Lists a part of a directory from a cookie on. Returns the entries, and true at the end of the directory.
    pub(crate) fn readdir(&mut self, dir: &nfs_fh3, cookie: u64, count: u32) -> Answer<(Vec<Listed>, bool)> {
        let cookieverf = cookieverf3([0; 8]);
        let arguments = READDIR3args { dir: dir.clone(), cookie, cookieverf, count };
        let read = self.nfs::<READDIR3resok<'_>, READDIR3resfail>(16, &arguments)?;
        let entries = read.reply.entries.0.into_iter().map(|it| Listed {
            name: it.name.0.to_vec(),
            fileid: it.fileid,
            cookie: it.cookie,
            attributes: None,
            handle: None,
        });
        Ok((entries.collect(), read.reply.eof))
    }

    /// Lists a part of a directory like [`readdir`](Self::readdir), with attributes and handles.
    pub(crate) fn readdirplus(
        &mut self,
        dir: &nfs_fh3,
        cookie: u64,
        maxcount: u32,
    ) -> Answer<(Vec<Listed>, bool)> {
        let cookieverf = cookieverf3([0; 8]);
        let arguments =
            READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount: maxcount, maxcount };
        let read = self.nfs::<READDIRPLUS3resok<'_>, READDIRPLUS3resfail>(17, &arguments)?;
        let entries = read.reply.entries.0.into_iter().map(|it| Listed {
            name: it.name.0.to_vec(),
            fileid: it.fileid,
            cookie: it.cookie,
            attributes: option(it.name_attributes),
            handle: option(it.name_handle),
        });
        Ok((entries.collect(), read.reply.eof))
    }

    pub(crate) fn fsstat(&mut self, file: &nfs_fh3) -> Answer<FSSTAT3resok> {
        self.nfs::<FSSTAT3resok, FSSTAT3resfail>(18, &FSSTAT3args { fsroot: file.clone() })
    }

    pub(crate) fn fsinfo(&mut self, file: &nfs_fh3) -> Answer<FSINFO3resok> {
        self.nfs::<FSINFO3resok, FSINFO3resfail>(19, &FSINFO3args { fsroot: file.clone() })
    }

    pub(crate) fn pathconf(&mut self, file: &nfs_fh3) -> Answer<PATHCONF3resok> {
        self.nfs::<PATHCONF3resok, PATHCONF3resfail>(20, &PATHCONF3args { object: file.clone() })
    }

    pub(crate) fn commit(&mut self, file: &nfs_fh3) -> Answer<COMMIT3resok> {
        self.nfs::<COMMIT3resok, COMMIT3resfail>(21, &COMMIT3args { file: file.clone(), offset: 0, count: 0 })
    }
}

/// Entry of a listing.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: Vec<u8>,
    pub(crate) fileid: u64,
    pub(crate) cookie: u64,
    pub(crate) attributes: Option<fattr3>,
    pub(crate) handle: Option<nfs_fh3>,
}

/// Converts an optional value of the protocol.
pub(crate) fn option<T: Pack + Unpack>(value: Nfs3Option<T>) -> Option<T> {
    match value {
        Nfs3Option::Some(value) => Some(value),
        Nfs3Option::None => None,
    }
}

/// Returns the argument for a directory entry: the handle of the directory, and the name.
pub(crate) fn at<'a>(dir: &nfs_fh3, name: &'a [u8]) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: filename3(Opaque::borrowed(name)) }
}

/// Returns true if a result has the attributes from before and after the operation.
pub(crate) fn is_complete(wcc: &wcc_data) -> bool {
    wcc.before.is_some() && wcc.after.is_some()
}

/// Returns attributes that set the permissions.
pub(crate) fn mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

/// Returns attributes that set the length.
pub(crate) fn size(size: u64) -> sattr3 {
    sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() }
}

/// Two values that are encoded one after the other.
pub(crate) struct Both<A, B>(pub(crate) A, pub(crate) B);

impl<A: Pack, B: Pack> Pack for Both<A, B> {
    fn packed_size(&self) -> usize {
        self.0.packed_size() + self.1.packed_size()
    }

    fn pack(&self, out: &mut impl Write) -> nfs3_types::xdr_codec::Result<usize> {
        Ok(self.0.pack(out)? + self.1.pack(out)?)
    }
}

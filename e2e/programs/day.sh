# A day's use of the folder $1; says what each step comes to. $2: where compilers put what they make
# beside it. Nothing in the output may depend on where the folder is.
set -u
cd "$1" || exit 1
step() { # runs a step in a shell of its own, and says how it ended
    name=$1
    shift
    sh -c "$*" 2>&1 | sed "s|$PWD|HERE|g"
    echo "$name: done"
}
cat >hello.c <<'C'
#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
    FILE *file = fopen(count > 1 ? words[1] : "static.out", "w");
    if (!file || fputs("by a static program\n", file) < 0 || fclose(file)) return 1;
    char line[64];
    file = fopen(count > 1 ? words[1] : "static.out", "r");
    return !fgets(line, sizeof line, file) || puts(line) < 0;
}
C
step cc 'cc -static -o hello hello.c && ./hello && ../"${PWD##*/}"/hello s2 && cat static.out s2'
command -v musl-gcc >/dev/null && step musl 'musl-gcc -static -o musl hello.c && ./musl m && cat m'
cat >dynamic.c <<'C'
#include <stdio.h>
int answer(void) { return 42; }
C
cat >main.c <<'C'
#include <stdio.h>
int answer(void);
int main(void) { return printf("%d\n", answer()) < 0; }
C
step library 'cc -shared -fPIC -o libanswer.so dynamic.c && cc -o main main.c -L. -lanswer \
    -Wl,-rpath,"$PWD" && ./main'
printf '#!/bin/sh\necho "script in $(basename "$0")"\n' >script
chmod +x script
step script './script; ../"${PWD##*/}"/script; chmod -x script; ./script; echo $?'
if command -v go >/dev/null; then
    cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
)

func main() {
	os.MkdirAll("go/deep/er", 0o755)
	err := os.WriteFile("go/deep/er/file", []byte("by Go\n"), 0o640)
	data, _ := os.ReadFile("go/deep/er/file")
	entries, _ := os.ReadDir("go/deep")
	fmt.Print(err, string(data), entries[0].Name(), "\n")
	fmt.Println(os.Rename("go/deep", "go/moved"), os.Remove("go/none"))
}
GO
    step go 'GOCACHE=$TMPDIR/gocache GOFLAGS=-mod=mod CGO_ENABLED=0 go build -o gohello main.go && ./gohello && find go | sort'
fi
if command -v busybox >/dev/null; then
    step busybox 'busybox sh -c "mkdir b; cd b; echo one >a; cp a c; ln -s a l; ln a h; cat l; \
        mv c d; ls; stat -c %h:%s a; tar cf ../b.tar .; cd ..; tar tf b.tar | sort; rm -r b"'
fi
step mmap "python3 - <<'PY'
import mmap, os
with open('mapped', 'wb') as file:
    file.truncate(100000)
with open('mapped', 'r+b') as file:
    mapped = mmap.mmap(file.fileno(), 0)
    mapped[0:5] = b'first'
    mapped[99995:100000] = b'last.'
    mapped.flush()
    print(os.pread(file.fileno(), 5, 0), os.pread(file.fileno(), 9, 99995))
    os.pwrite(file.fileno(), b'FIRST', 0)
    mapped.close()
print(open('mapped', 'rb').read()[:5])
PY"
step numpy "python3 - <<'PY'
try:
    import numpy
except ImportError:
    raise SystemExit
array = numpy.memmap('array', dtype='float64', mode='w+', shape=(1000,))
array[:] = numpy.arange(1000)
array.flush()
print(numpy.memmap('array', dtype='float64', mode='r').sum())
PY"
# An environment in the folder, with numpy if there is any, and a module of its own that is loaded
# from the folder.
step venv 'python3 -m venv --without-pip venv && cat >own.c <<"C"
#include <Python.h>
static struct PyModuleDef own = {PyModuleDef_HEAD_INIT, "own", "loaded", -1, 0, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_own(void) { return PyModule_Create(&own); }
C
site=$(echo venv/lib/python3*/site-packages); of=$(python3 -c "import sysconfig; print(sysconfig.get_path(\"include\"))")
if [ -f "$of/Python.h" ]; then cc -shared -fPIC -I"$of" -o $site/own.so own.c && \
    venv/bin/python -c "import own, os; print(own.__doc__, os.path.relpath(own.__file__)[:9])"; fi
numpy=$(python3 -c "import numpy, os; print(os.path.dirname(numpy.__path__[0]))" 2>/dev/null) && \
    cp -r "$numpy"/numpy "$numpy"/numpy.libs $site 2>/dev/null; [ ! -d $site/numpy ] || venv/bin/python -c "
import numpy, os
print(os.path.relpath(numpy.__path__[0])[:9], numpy.arange(10.0).reshape(2, 5) @ numpy.ones(5))"
. venv/bin/activate && python -c "import sys; print(sys.prefix != sys.base_prefix)"'
step git 'git init -q r && cd r && git config user.name a && git config user.email b && seq 1000 >f && git add f \
    && git commit -q -m one && seq 2000 >f && git commit -q -a -m two && git gc -q && cd .. \
    && git clone -q r c && cd c && git log --format=%s && wc -l <f && git fsck 2>&1'
step sqlite 'sqlite3 db "pragma journal_mode=wal; create table t(a); \
    insert into t values(1); insert into t values(2); select sum(a) from t;"; ls db*; \
    sqlite3 db "select count(*) from t; pragma journal_mode=delete; pragma integrity_check;"'
step links 'ln -s /etc/hostname out; cmp out /etc/hostname && echo same; readlink out; \
    ln -s . self; cat self/self/script | head -n 1; ln -s "$PWD/script" absolute; head -n 1 absolute'
step copies 'mkdir d; seq 10 >d/x; chmod 604 d/x; touch -d @1000000000 d/x; cp -a d e; \
    stat -c "%a %Y %s" e/x; diff -r d e && echo same; tar cf - d | tar xf - -C e; find e | sort'
step locks 'flock lock echo locked; flock lock sh -c "flock -n lock echo twice || echo refused"'
step names 'touch -- "a b" "-c" "é"; mkdir -p x/y; mv x/y z; rmdir x z; rmdir d; echo $?; rm -- -c; \
    ls | LC_ALL=C sort | grep -v -e "^m$" -e "^go"; ln script script 2>/dev/null || echo exists; mkdir script/x'
step tail 'echo 1 >log; (sleep 0.3; echo 2 >>log; sleep 0.3; echo 3 >>log) & \
    timeout 5 tail -f -s 0.1 -n +1 log | head -n 3; wait'
step sizes 'truncate -s 1M sparse; printf end >>sparse; wc -c <sparse; truncate -s 3 sparse; \
    od -c sparse; dd if=/dev/zero of=big bs=1M count=9 status=none; sha256sum big; \
    dd if=/dev/zero of=big bs=1 seek=5 count=3 conv=notrunc status=none; stat -c %s big'
step edit 'seq 5 >text; sed -i s/3/three/ text; cat text; printf "2d\nw\nq\n" | ed -s text 2>/dev/null \
    || sed -i 2d text; cat text'
step unlinked 'exec 3<>gone; echo still >&3; rm gone; cat /proc/self/fd/3; ls gone; stat -Lc %h:%s /proc/self/fd/3'
step python 'mkdir -p package; echo "word = \"imported\"" >package/__init__.py; python3 -c "
import ctypes, package
print(package.word, ctypes.CDLL(\"./libanswer.so\").answer())"; ls package | sort'
step refused 'mkfifo pipe 2>/dev/null && rm pipe; setfattr -n user.a -v b script 2>/dev/null; echo tried'
step inside 'mkdir -p in/d; echo deep >in/d/f; ln -s "$PWD/in/d" to; cat to/f; echo more >>to/f; cat in/d/f; \
    mv to/f to/g; ls in/d; (cd to && pwd -P && cat ../d/g); cp -a to copied; readlink copied; \
    find -L to -type f; tar cf - to in | tar tf - | sort; rm to; ls in/d'
step environment 'env -i /bin/sh -c "echo kept >alone; /bin/cat alone"'
step watch "python3 - <<'PY'
import ctypes, os, struct, subprocess
libc = ctypes.CDLL(None)
os.mkdir('watched')
watch = libc.inotify_init1(0)
assert libc.inotify_add_watch(watch, b'watched', 0x100 | 0x200 | 0x8) > 0
subprocess.run(['sh', '-c', 'echo 1 >watched/one; rm watched/one'], env={'PATH': os.environ['PATH']})
seen, data = [], os.read(watch, 4096)
while len(seen) < 3:
    if not data:
        data = os.read(watch, 4096)
    _, mask, _, length = struct.unpack('iIII', data[:16])
    seen.append((hex(mask), data[16:16 + length].rstrip(b'\0')))
    data = data[16 + length:]
print(seen)
PY"
[ "$(id -u)" = 0 ] && step nobody 'echo secret >secret; chmod 600 secret; chmod 755 .; \
    setpriv --reuid 65534 --regid 65534 --clear-groups cat secret; echo $?'
command -v vim >/dev/null && step vim 'vim -N -u NONE -i NONE -es -c "1s/^/edited /" -c wq text </dev/null; \
    cat text; ls -a | grep -c "text\.sw\|text~"'
command -v rsync >/dev/null && step rsync 'rsync -a --exclude=x e/ f/ && diff -r --exclude=x e f && echo same'
command -v java >/dev/null && step java "cat >Mapped.java <<'J'
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.*;
public class Mapped {
    public static void main(String[] words) throws Exception {
        Path path = Path.of(\"java.bin\");
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.CREATE,
                StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MappedByteBuffer mapped = file.map(FileChannel.MapMode.READ_WRITE, 0, 8192);
            mapped.put(8191, (byte) 'J');
            mapped.force();
        }
        System.out.println(Files.size(path) + \" \" + Files.readAllBytes(path)[8191]);
    }
}
J
java -Xint -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xshare:auto Mapped.java"
case $(cat /proc/sys/kernel/core_pattern) in
    core*) step core 'ulimit -c unlimited; (sh -c "kill -ABRT \$\$") 2>/dev/null; echo $?; \
        for file in core*; do head -c 4 $file | tail -c 3; echo; rm $file; done' ;;
esac

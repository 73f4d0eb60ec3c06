/*
 * Multifiles in C++: one class for files opened by one process, one for files opened by the ranks
 * of a communicator (with <mpi.h> included before, or -DSION_MPI). Header only.
 *
 * Set what sion_open or sion_paropen_mpi asks for, open(), read and write, close(). getReturnCode()
 * is what the last call returned; sion_error.h tells why it failed. Objects are not copied. A
 * serial file that is not closed is closed by its destructor, a parallel one is not: closing it is
 * collective.
 */
#ifndef SION_CXX_H
#define SION_CXX_H

#include <cstddef>
#include <cstdlib>
#include <string>

#include "sion.h"

namespace sionlib {

/* What both kinds of files have in common. */
class SION_Base {
public:
    const char *getSionFileName() const { return _name.c_str(); }
    void setMode(const std::string &mode) { _mode = mode; }
    std::string getMode() const { return _mode; }
    void setNumberOfFiles(int count) { _num_files = count; }
    int getNumberOfFiles() const { return _num_files; }
    void setNumberOfTasks(int count) { _num_tasks = count; }
    int getNumberOfTasks() const { return _num_tasks; }
    void setRank(int rank) { _rank = rank; }
    int getRank() const { return _rank; }
    void setChunkSize(sion_int64 size) { _chunk_size = size; }
    sion_int64 getChunkSize() const { return _chunk_size; }
    /* Arrays stay the caller's; they have an entry for each task. */
    void setChunkSizes(sion_int64 *sizes) { _chunk_sizes = sizes; }
    sion_int64 *getChunkSizes() const { return _chunk_sizes; }
    void setGlobalRanks(int *ranks) { _global_ranks = ranks; }
    int *getGlobalRanks() const { return _global_ranks; }
    void setFileSystemBlockSize(sion_int32 size) { _fs_block_size = size; }
    sion_int32 getFileSystemBlockSize() const { return _fs_block_size; }
    FILE *getFilePtr() const { return _stream; }
    int getSid() const { return _sid; }
    int getReturnCode() const { return _return_code; }
    int getNumberOfSuccessfulReadElements() const { return _return_code; }

    int getFileEndianness() const { return sion_get_file_endianness(_sid); }
    sion_int64 getBytesWritten() const { return sion_get_bytes_written(_sid); }
    sion_int64 getBytesRead() const { return sion_get_bytes_read(_sid); }
    sion_int64 getBytesAvailInBlock() const { return sion_bytes_avail_in_block(_sid); }
    sion_int64 getBytesAvailInChunk() const { return sion_bytes_avail_in_chunk(_sid); }
    sion_int64 getPosition() const { return sion_get_position(_sid); }

    void ensureFreeSpace(long bytes) { _return_code = sion_ensure_free_space(_sid, bytes); }
    void endOfFile() { _return_code = sion_feof(_sid); }
    /* Goes on with the task of setRank, where it stands. */
    void seek() {
        _return_code = sion_seek(_sid, _rank, SION_CURRENT_BLK, SION_CURRENT_POS);
    }
    void seekFp() {
        _return_code =
            sion_seek_fp(_sid, _rank, SION_CURRENT_BLK, SION_CURRENT_POS, &_stream);
    }

protected:
    SION_Base(const std::string &name, const std::string &mode, int num_files)
        : _name(name), _mode(mode), _num_files(num_files), _num_tasks(1), _rank(0),
          _chunk_sizes(NULL), _chunk_size(0), _fs_block_size(-1), _global_ranks(NULL),
          _stream(NULL), _return_code(SION_NOT_SUCCESS), _sid(SION_ID_UNDEF) {}

    void put(const void *data, std::size_t size, std::size_t count) {
        _return_code = static_cast<int>(sion_fwrite(data, size, count, _sid));
    }
    void get(void *data, std::size_t size, std::size_t count) {
        _return_code = static_cast<int>(sion_fread(data, size, count, _sid));
    }

    std::string _name;
    std::string _mode;
    int _num_files;
    int _num_tasks;
    int _rank;
    sion_int64 *_chunk_sizes;
    sion_int64 _chunk_size;
    sion_int32 _fs_block_size;
    int *_global_ranks;
    FILE *_stream;
    int _return_code;
    int _sid;

private:
    SION_Base(const SION_Base &);
    SION_Base &operator=(const SION_Base &);
};

typedef SION_Base LSION_Base;

namespace serial {

class SIONFile : public SION_Base {
public:
    explicit SIONFile(const std::string &name, const std::string &mode = "wb", int num_tasks = 1,
                      int num_files = 1, sion_int64 *chunk_sizes = NULL,
                      sion_int32 fs_block_size = -1, int *global_ranks = NULL)
        : SION_Base(name, mode, num_files) {
        _num_tasks = num_tasks;
        _chunk_sizes = chunk_sizes;
        _fs_block_size = fs_block_size;
        _global_ranks = global_ranks;
    }
    ~SIONFile() {
        if (_sid >= 0)
            close();
    }

    void open() {
        /* Reading without arrays of the caller: nothing is to be allocated for nobody. */
        sion_int64 **sizes = _chunk_sizes || writes() ? &_chunk_sizes : NULL;
        int **ranks = _global_ranks || writes() ? &_global_ranks : NULL;
        _sid = sion_open(_name.c_str(), _mode.c_str(), &_num_tasks, &_num_files, sizes,
                         &_fs_block_size, ranks, NULL);
        _return_code = _sid;
    }
    /* Opens the task of setRank only. */
    void openRank() {
        _sid = sion_open_rank(_name.c_str(), _mode.c_str(), &_chunk_size, &_fs_block_size, &_rank,
                              NULL);
        _return_code = _sid;
    }
    int close() {
        _return_code = sion_close(_sid);
        _sid = SION_ID_UNDEF;
        return _return_code;
    }

    template <class T> void write(const T &data) { put(&data, sizeof(data), 1); }
    /* A container with contiguous data. */
    template <class T> void write(const T &data, int unit, int length) {
        put(data.data(), static_cast<std::size_t>(unit), static_cast<std::size_t>(length));
    }
    template <class T> void read(T *data) { get(data, sizeof(T), 1); }
    template <class T> void read(T *data, int unit, int length) {
        get(data, static_cast<std::size_t>(unit), static_cast<std::size_t>(length));
    }

private:
    bool writes() const { return _mode.find('w') != std::string::npos; }
};

template <class T> SIONFile &operator<<(SIONFile &file, const T &data) {
    file.write(data);
    return file;
}

template <class T> SIONFile &operator>>(SIONFile &file, T &data) {
    file.read(&data);
    return file;
}

typedef SIONFile LSIONFile;

} /* namespace serial */

#if defined(MPI_VERSION)

namespace mpi {

class SIONFile : public SION_Base {
public:
    explicit SIONFile(const std::string &name, const std::string &mode = "bw", int num_files = 1,
                      int global_rank = 0, MPI_Comm global = MPI_COMM_WORLD,
                      MPI_Comm local = MPI_COMM_WORLD)
        : SION_Base(name, mode, num_files), _physical_name(NULL), _global(global), _local(local),
          _global_rank(global_rank) {}
    ~SIONFile() { std::free(_physical_name); }

    /* Name of this rank's physical file, once open. */
    const char *getNewSionFileName() const { return _physical_name; }
    void setLocalCommunicator(MPI_Comm comm) { _local = comm; }
    MPI_Comm getLocalCommunicator() const { return _local; }
    void setGlobalCommunicator(MPI_Comm comm) { _global = comm; }
    MPI_Comm getGlobalCommunicator() const { return _global; }
    void setGlobalRank(int rank) { _global_rank = rank; }
    int getGlobalRank() const { return _global_rank; }

    void open() {
        std::free(_physical_name);
        _physical_name = NULL;
        _sid = sion_paropen_mpi(_name.c_str(), _mode.c_str(), &_num_files, _global, &_local,
                                &_chunk_size, &_fs_block_size, &_global_rank, NULL,
                                &_physical_name);
        _return_code = _sid;
    }
    void close() {
        _return_code = sion_parclose_mpi(_sid);
        _sid = SION_ID_UNDEF;
    }

    template <class T> void write(const T &data) { put(&data, sizeof(data), 1); }
    template <class T> void read(T *data) { get(data, sizeof(T), 1); }
    /* Collective; a container with contiguous data. */
    template <class T> void write(const T &data, int unit, int length) {
        _return_code = static_cast<int>(
            sion_coll_fwrite(data.data(), static_cast<std::size_t>(unit),
                             static_cast<std::size_t>(length), _sid));
    }
    template <class T> void read(T *data, int unit, int length) {
        _return_code =
            static_cast<int>(sion_coll_fread(data, static_cast<std::size_t>(unit),
                                             static_cast<std::size_t>(length), _sid));
    }

private:
    char *_physical_name;
    MPI_Comm _global;
    MPI_Comm _local;
    int _global_rank;
};

template <class T> SIONFile &operator<<(SIONFile &file, const T &data) {
    file.write(data);
    return file;
}

template <class T> SIONFile &operator>>(SIONFile &file, T &data) {
    file.read(&data);
    return file;
}

typedef SIONFile LSIONFile;

} /* namespace mpi */

#endif

} /* namespace sionlib */

#endif
